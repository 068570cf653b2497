#!/bin/sh
# Pictures of report pages for the docs, docs/img/*.png: tools/screenshots.sh [PROGRAM]
#
# Runs the demo, one experiment and one computation (a few minutes), then takes pictures with chromium. The same
# run writes the demo's figure, docs/img/demo-light.svg and demo-dark.svg. The runs stay in runs/.
set -eu
program=$(realpath "${1:-build/braid}")
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "screenshots.sh: no chromium found; install one: apt-get install chromium" >&2
  exit 1
fi
"$program" demo --run runs/demo --svg docs/img
"$program" lab run hqlt-mixing-text --quick --quiet
"$program" lab run deltaformer-theorem1 --quick --quiet

# PAGE NAME HEIGHT
take() {
  "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size="1000,$3" \
    --screenshot="$PWD/docs/img/$2.png" "file://$PWD/$1" 2> /dev/null
  ls -l "docs/img/$2.png"
}
take runs/demo/report.html demo 760
take runs/lab/hqlt-mixing-text-quick/report.html experiment 900
take runs/lab/deltaformer-theorem1-quick/report.html claims 760
