#!/usr/bin/env bash
# Packs what runs on a machine with a GPU and without this tree's packages: stripped tests and benchmarks, the few
# shared libraries they need beside the C library, and one script that runs all of it. Called by ./dev gpu-bundle.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/cuda bundle=build/gpu-bundle
limit=$((16 * 1024 * 1024)) tree_limit=$((60 * 1024 * 1024))
tests=(test_gpu test_base test_grid test_mask test_select test_attend)
benches=(bench_mask_gpu bench_attention)

cmake --build "$build" -- --quiet tulle_cuda_all "${tests[@]}" "${benches[@]}"
rm -rf "$bundle"
mkdir -p "$bundle/lib"
for program in "${tests[@]/#/tests/}" "${benches[@]/#/bench/}"; do
  strip -o "$bundle/$(basename "$program")" "$build/$program"
done

# Everything but the C library and the driver, which belong to the machine.
for program in "$bundle"/test_* "$bundle"/bench_*; do
  ldd "$program" | awk '$2 == "=>" { print $3 }'
done | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libcuda)\.so' | xargs -r cp -Lt "$bundle/lib"
strip "$bundle"/lib/*

cat >"$bundle/run" <<'RUN'
#!/usr/bin/env bash
# Runs every test, then every benchmark; logs go to $OUT (or ./out). The last lines are a table.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
table=""
declare -A record=([bench_mask_gpu]="--record $out/mask_gpu.json")
for program in "$here"/test_*; do
  name=$(basename "$program")
  if "$program" --gtest_brief=1 >"$out/$name.log" 2>&1; then state=passed; else state=FAILED failed=1; fi
  table+=$(printf '%-18s %-7s %s' "$name" "$state" "$(grep -E 'tests? ran|PASSED' "$out/$name.log" | tail -n 1)")$'\n'
done
for program in "$here"/bench_*; do
  name=$(basename "$program")
  if timeout 300 "$program" ${record[$name]:-} >"$out/$name.log" 2>&1; then state=ran; else state=FAILED failed=1; fi
  table+=$(printf '%-18s %-7s' "$name" "$state")$'\n'
done
printf '%s' "$table" | tee "$out/table.txt"
exit "$failed"
RUN
chmod +x "$bundle/run"

size=$(du -sb "$bundle" | cut -f1)
tree=$(git ls-files -z | xargs -0 du -cb 2>/dev/null | tail -n 1 | cut -f1)
printf 'bundle %s: %d KiB; tracked tree: %d KiB\n' "$bundle" $((size / 1024)) $((tree / 1024))
[ "$size" -le "$limit" ] || { echo "the bundle is larger than 16 MiB" >&2; exit 1; }
[ $((size + tree)) -le "$tree_limit" ] || { echo "bundle and tracked tree together exceed 60 MiB" >&2; exit 1; }
