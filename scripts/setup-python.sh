#!/usr/bin/env bash
# Makes the virtual environment and installs the package with every extra at the exact versions of
# constraints.txt. Safe to repeat: an environment that exists is brought up to date, not rebuilt.
set -euo pipefail

venv=${1:?usage: setup-python.sh VENV}
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $("$python" --version 2>&1) is too old; install Python 3.11 or newer," >&2
    echo "       or name one: make setup PYTHON=python3.12" >&2
    exit 1
fi

# Debian ships python3 without ensurepip; a package of its own adds it.
has_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }

if ! has_venv && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing python3-venv"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
fi
if ! has_venv; then
    echo "setup: $python lacks the venv module; install it first:" >&2
    echo "       sudo apt-get install python3-venv" >&2
    exit 1
fi

if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    "$python" -m venv --clear "$venv"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet -c constraints.txt)

# Says what is being done, and every fifteen seconds that it still is.
telling() {
    local what=$1 began=$SECONDS
    shift
    echo "setup: $what"
    "$@" &
    local work=$!
    while kill -0 "$work" 2>/dev/null; do
        sleep 1
        if (( (SECONDS - began) % 15 == 14 )); then echo "setup: $what, $((SECONDS - began)) s so far"; fi
    done
    wait "$work"
}

# The build tools come first and at fixed versions, so that what they build (PySpark is published
# as source only, and is several hundred megabytes: the first time takes a while) is the same too.
telling "build tools into $venv" "${pip[@]}" pip setuptools wheel hatchling editables
telling "packages into $venv, Spark among them (minutes the first time)" \
    "${pip[@]}" --no-build-isolation -e '.[dev,spark,postgres,admin]'

# Two libxml2 in one process corrupt memory; better to learn it here than in a signature.
"$venv/bin/python" - <<'PY'
import lxml.etree
import xmlsec

ours, theirs = lxml.etree.LIBXML_VERSION, xmlsec.get_libxml_version()
if ours != theirs:
    raise SystemExit(f"setup: lxml has libxml2 {ours} and xmlsec {theirs}; install their wheels")
PY
