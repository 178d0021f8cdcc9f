#!/usr/bin/env bash
# Installs what `oncewire bench` measures beside the handler, where that is allowed. What cannot be
# installed is left out, and the benchmark says so.
set -euo pipefail

venv=${1:?usage: setup-bench.sh VENV}

echo "setup: installing NATS, pika and pyas2lib into $venv"
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet -c constraints.txt \
    --no-build-isolation -e '.[bench]'

if [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing rabbitmq-server"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends rabbitmq-server && exit 0
fi
echo "setup: no RabbitMQ; to measure it too: sudo apt-get install rabbitmq-server" >&2
