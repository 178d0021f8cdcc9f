#!/usr/bin/env bash
# The pictures of states and of the house are laid out by Graphviz. Finds it; else installs it where
# that is allowed (root with apt-get); else says what to install. Only `make diagrams` needs it.
set -euo pipefail

if command -v dot >/dev/null; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing graphviz"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends graphviz && exit 0
fi

echo "setup: no Graphviz; to draw the diagrams: sudo apt-get install graphviz" >&2
exit 1
