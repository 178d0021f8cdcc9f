#!/usr/bin/env bash
# The console is tried in a browser. Finds Chromium; else installs it where that is allowed (root
# with apt-get); else says what to install. Only tests need it.
set -euo pipefail

if command -v chromium >/dev/null; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing chromium"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core && exit 0
fi

echo "setup: no chromium; to test the console too: sudo apt-get install chromium" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
