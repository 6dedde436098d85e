#!/usr/bin/env bash
# Generates two small videos with their reports, the second with a profile and so with rank maps, and opens the pages in
# headless Chromium: no line on the console, the clips play, pictures are taken.
# Usage: report_page.sh SOURCE_DIR BINARY_DIR
set -euo pipefail
source=$1 binary=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$source"
prompt="a large red striped circle moving left over grey waves"
"$binary/src/tulle" generate --model models/tiny --prompt "$prompt" --grid 5x8x12 --steps 6 --ranks 2 --compare dense \
  --quiet --out "$work/run"
tools/screenshot.sh "$work/run/report.html" "$binary/report_page.png"

"$binary/src/tulle" calibrate --model models/tiny --grid 5x8x12 --block 16 --count 2 --fidelity-count 1 --steps 4 \
  --bins 2 --out "$work/tiny.profile" >/dev/null
echo '{"preset": "tulle", "block_q": 16, "block_k": 16, "tail": 16}' >"$work/fine.json"
"$binary/src/tulle" generate --model models/tiny --prompt "$prompt" --grid 5x8x12 --steps 6 --quiet \
  --policy "$work/fine.json" --profile "$work/tiny.profile" --out "$work/ranked"
grep -q '"ranks":"' "$work/ranked/report.html" || { echo "the page carries no rank maps" >&2; exit 1; }
tools/screenshot.sh "$work/ranked/report.html" "$binary/report_page_ranks.png"
echo "the pages open without an error; their pictures are $binary/report_page.png and report_page_ranks.png"
