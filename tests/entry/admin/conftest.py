"""An admin port of acme, with its tokens, while both handlers run."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from oncewire.entry.admin.server import admin_port
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import Settings, load
from tests.entry.served import Served
from tests.ports import free_port


class Rest:
    """The port, and a client of HTTP for each role."""

    def __init__(self, settings: Settings, served: Served) -> None:
        self.settings, self.served = settings, served
        self.url = f"http://127.0.0.1:{settings.admin.port}"
        tokens = TokenFile(settings.path(settings.admin.tokens))
        self.tokens = {role: tokens.add(role.value, [role]) for role in Permission}

    def client(self, role: Permission | None = None, **more: object) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)  # type: ignore[arg-type]

    def call(
        self, role: Permission | None, method: str, path: str, **more: object
    ) -> httpx.Response:
        with self.client(role) as client:
            return client.request(method, path, **more)  # type: ignore[arg-type]


@pytest.fixture
def rest(pair: Path, served: Served) -> Iterator[Rest]:
    """acme's admin port listens."""
    (pair / "lake").mkdir()
    flags = {"admin.port": free_port(), "admin.max_body": 4_000_000, "lake.path": "../lake"}
    settings = load(pair / "acme", environ={}, flags=flags).settings
    rest = Rest(settings, served)
    door = admin_port(settings, flags)
    served.do(door.__aenter__())
    try:
        yield rest
    finally:
        served.do(door.__aexit__(None, None, None))
