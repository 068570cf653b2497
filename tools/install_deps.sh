#!/bin/sh
# Installs the Debian packages Braid is built from, if any is missing. Needs root for that; otherwise says what to run.
set -eu
packages="g++ cmake ninja-build libdnnl-dev libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev zlib1g-dev libpcre2-dev libutf8proc-dev
          libsentencepiece-dev libedit-dev libgtest-dev"
missing=""
for p in $packages; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "Braid needs these Debian packages. Run this line, then the same command again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
  exit 1
fi
echo "installing:$missing"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
