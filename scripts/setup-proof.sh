#!/usr/bin/env bash
# Evidence is checked by tools that are not ours: openssl, xmlsec1 and xmllint. Finds them; else
# installs them where that is allowed (root with apt-get); else says what to install. Only tests
# need them.
set -euo pipefail

missing=()
for tool in openssl xmlsec1; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
command -v xmllint >/dev/null || missing+=(libxml2-utils)
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" && exit 0
fi

echo "setup: no ${missing[*]}; to test evidence too: sudo apt-get install ${missing[*]}" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
