#!/usr/bin/env bash
# Handlers beside each other are tested behind a real balancer, which the tests start themselves.
# Finds one; else installs Debian's where that is allowed (root with apt-get); else says what to
# install. Only tests need it.
set -euo pipefail

if PATH="$PATH:/usr/sbin" command -v haproxy >/dev/null; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing haproxy"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends haproxy && exit 0
fi

echo "setup: no HAProxy; to test handlers behind it: sudo apt-get install haproxy" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
