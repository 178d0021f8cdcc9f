"""An admin port of acme, with its tokens, while both handlers run."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import pytest

from oncewire.entry.admin.server import admin_port
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.settings import Settings, load
from tests.entry.conftest import made_partners
from tests.entry.served import Served
from tests.ports import free_port


class Rest:
    """The port, and a client of HTTP for each role."""

    def __init__(self, settings: Settings, served: Served) -> None:
        self.settings, self.served = settings, served
        self.url = f"http://127.0.0.1:{settings.admin.port}"
        self.tokens = {role: self.token(role.value, (role,)) for role in Permission}

    def token(self, name: str, roles: Iterable[Permission]) -> str:
        """A token of that name."""
        return TokenFile(self.settings.path(self.settings.admin.tokens)).add(name, roles)

    def client(self, role: Permission | None = None, **more: object) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)  # type: ignore[arg-type]

    def call(
        self, role: Permission | None, method: str, path: str, **more: object
    ) -> httpx.Response:
        with self.client(role) as client:
            return client.request(method, path, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rest(pattern: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """acme's admin port listens, for all tests of a module: three processes' work takes seconds."""
    folder = tmp_path_factory.mktemp("rest") / "parties"
    shutil.copytree(pattern, folder)
    made_partners(folder)
    (folder / "lake").mkdir()
    flags = {"admin.port": free_port(), "admin.max_body": 4_000_000, "lake.path": "../lake"}
    settings = load(folder / "acme", environ={}, flags=flags).settings
    with Served(folder, "acme", "globex") as served:
        rest = Rest(settings, served)
        door = admin_port(settings, flags)
        served.do(door.__aenter__())
        try:
            yield rest
        finally:
            served.do(door.__aexit__(None, None, None))
