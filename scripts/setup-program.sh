#!/usr/bin/env bash
# Finds programs that tests or pictures need; else installs Debian's packages where that is allowed
# (root with apt-get); else says what to install, which on a build server is a failure.
#
#     setup-program.sh "to test evidence too" "openssl xmlsec1" openssl xmlsec1
#
# Debian keeps some programs where the PATH of a user does not look.
set -euo pipefail
what_for=$1 programs=$2
shift 2

PATH="$PATH:/usr/sbin:$(compgen -G '/usr/lib/postgresql/*/bin' | tr '\n' ':' || true)"
missing=()
for program in $programs; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" && exit 0
fi

echo "setup: no ${missing[*]}; $what_for: sudo apt-get install $*" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
