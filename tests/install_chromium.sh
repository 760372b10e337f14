#!/bin/sh
# Sees to it that the tests of pages find a Chromium: an installed one, else Debian's package where we are root.
set -eu

if [ -n "${CHROMIUM:-}" ]; then
    command -v "$CHROMIUM" >/dev/null && exit 0
    echo "CHROMIUM=$CHROMIUM is no program." >&2
    exit 1
fi
# browser_support.py looks for the same names.
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "The tests of pages need a Chromium. Install one (Debian: apt-get install chromium), or set CHROMIUM to its path." >&2
    exit 1
fi
echo "Installing Chromium for the tests of pages."
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
$apt update
$apt install -y --no-install-recommends chromium >/dev/null
