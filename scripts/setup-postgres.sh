#!/usr/bin/env bash
# The store on PostgreSQL is tested on a real server, which the tests start themselves. Finds one;
# else installs Debian's where that is allowed (root with apt-get); else says what to install. Only
# tests need it.
set -euo pipefail

if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing postgresql"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends postgresql && exit 0
fi

echo "setup: no PostgreSQL; to test its store too: sudo apt-get install postgresql" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
