#!/usr/bin/env bash
# Generates a small video with its report and opens the page in headless Chromium: no line on the console, both clips
# play, a picture is taken. Usage: report_page.sh SOURCE_DIR BINARY_DIR
set -euo pipefail
source=$1 binary=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$source"
"$binary/src/tulle" generate --model models/tiny --prompt "a large red striped circle moving left over grey waves" \
  --grid 5x8x12 --steps 6 --ranks 2 --compare dense --quiet --out "$work/run"
tools/screenshot.sh "$work/run/report.html" "$binary/report_page.png"
echo "the page opens without an error; its picture is $binary/report_page.png"
