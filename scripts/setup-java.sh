#!/usr/bin/env bash
# Spark needs Java 17 or newer. Finds one; else installs a headless runtime where that is allowed
# (root with apt-get); else says what to install. A missing Java ends only a CI run: everything but
# the pipeline works without it.
set -euo pipefail

wanted=17

java_major() {
    local java=java
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
        java=$JAVA_HOME/bin/java
    fi
    # No java, or one that does not start, counts as none.
    { "$java" -version 2>&1 || true; } | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1
}

have=$(java_major)
if [ "${have:-0}" -ge "$wanted" ]; then
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    # The newest long-term release this distribution has; names differ between releases.
    for package in openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless; do
        # A name can be known and yet have nothing to install, so ask for a rehearsal.
        if apt-get install --dry-run -qq "$package" >/dev/null 2>&1; then
            echo "setup: installing $package"
            DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "$package" && break
        fi
    done
    have=$(java_major)
    if [ "${have:-0}" -ge "$wanted" ]; then
        exit 0
    fi
fi

echo "setup: no Java $wanted or newer (found: ${have:-none}); the Spark pipeline needs one." >&2
echo "       sudo apt-get install openjdk-17-jre-headless     (or set JAVA_HOME)" >&2
if [ "${CI:-}" = true ]; then
    exit 1
fi
