#!/usr/bin/env bash
# Installs the build into a folder of its own, builds examples/consumer against it with find_package and with
# pkg-config, and runs the results. Usage: consumer.sh SOURCE_DIR BINARY_DIR
set -euo pipefail
source=$1 binary=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$binary" --prefix "$work/prefix" >"$work/install.log"
cmake -G Ninja -S "$source/examples/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
"$work/build/sparse_attention"
"$work/build/engine"

export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig:$(echo "$work"/prefix/lib/*/pkgconfig)"
pkg-config --exists tulle
# The .pc file carries the configured prefix; the test's copy lies elsewhere.
# shellcheck disable=SC2046
g++ -std=c++20 "$source/examples/consumer/sparse_attention.cpp" -o "$work/by_pkg_config" \
  $(pkg-config --define-variable=prefix="$work/prefix" --cflags --libs tulle-attention)
"$work/by_pkg_config"

"$work/prefix/bin/tulle" --version
echo "consumer: all three programs ran"
