"""A real S3 server for tests, and the environment that leads to it."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer


class Buckets:
    """The server, and what can happen to it."""

    def __init__(self, made: ThreadedMotoServer) -> None:
        self._made = made
        host, port = made.get_host_and_port()
        self.address = f"http://{host}:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "of-this-test",
            "AWS_REGION": "us-east-1",
        }

    def empty(self, *buckets: str) -> None:
        """Have these buckets, with nothing in them, and no others."""
        self._ask("POST", "/moto-api/reset")
        for bucket in buckets:
            self._ask("PUT", f"/{bucket}")

    def _ask(self, method: str, path: str) -> None:
        urllib.request.urlopen(urllib.request.Request(self.address + path, method=method)).close()


@contextmanager
def serving() -> Iterator[Buckets]:
    """A server of buckets, for as long as it is needed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    try:
        yield Buckets(made)
    finally:
        made.stop()
