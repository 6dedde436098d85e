#!/bin/sh
# Takes a picture of a page with headless Chromium, and fails when the page writes anything to the console: script
# errors, clips that do not play, files that are not found.
#
#     tools/screenshot.sh PAGE.html OUT.png [WIDTH [HEIGHT [light|dark]]]
#
# CHROMIUM names the browser; by default chromium, chromium-browser or google-chrome.
set -eu
usage="usage: tools/screenshot.sh PAGE.html OUT.png [WIDTH [HEIGHT [light|dark]]]"
page=${1:?$usage}
out=${2:?$usage}
width=${3:-1280}
height=${4:-2600}
scheme=${5:-light}
[ -f "$page" ] || { echo "screenshot: there is no page $page" >&2; exit 1; }

browser=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
  [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
[ -n "$browser" ] || { echo "screenshot: no Chromium was found: install chromium or set CHROMIUM" >&2; exit 1; }

case $scheme in
  light) colours=1 ;;
  dark) colours=0 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A profile of its own, so that running browsers and their settings have no part in the picture.
if ! timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --disable-background-networking --autoplay-policy=no-user-gesture-required \
    --blink-settings=preferredColorScheme=$colours --enable-logging=stderr --virtual-time-budget=4000 \
    --window-size="$width,$height" --screenshot="$work/picture.png" \
    "file://$(realpath "$page")" >"$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "screenshot: $browser failed on $page" >&2
  exit 1
fi
if grep 'CONSOLE' "$work/log" >&2; then
  echo "screenshot: $page wrote the lines above to the console" >&2
  exit 1
fi
[ -s "$work/picture.png" ] || { echo "screenshot: $browser took no picture of $page" >&2; exit 1; }
mv "$work/picture.png" "$out"
