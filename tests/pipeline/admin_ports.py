"""Admin ports of parties whose handlers do not run, each on a store with a journal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncewire.entry.admin.server import admin_port
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from oncewire.journal.row import Row
from oncewire.pipeline.sources.admin_port import AdminPortBook
from tests.entry.served import Served
from tests.pipeline.books import make_store
from tests.ports import free_port


class Port:
    """A party's admin port."""

    def __init__(self, folder: Path, url: str, tokens: TokenFile) -> None:
        self.store, self.url = folder / "data" / "oncewire.db", url
        self.token = tokens.add("lake", (Permission.LOOK,))
        self.taker = tokens.add("shop", (Permission.TAKE,))
        self.rest = {"url": url, "token": self.token}

    def book(self) -> AdminPortBook:
        return AdminPortBook(self.url, self.token)


Opened = Callable[..., Port]


@contextmanager
def opening(at: Path) -> Iterator[Opened]:
    """Opens the admin port of a new party whose journal has these rows."""
    served = Served(at)
    doors = []

    def make(name: str, rows: list[Row], node: str = "globex", **more: object) -> Port:
        folder = at / name / node
        make_party(folder, node, now=RealWorld().now(), port=1, key_kind=KeyKind.EC)
        flags = {"admin.port": free_port(), **more}
        settings = load(folder, environ={}, flags=flags).settings
        make_store(settings.path(settings.store.path), node, rows)
        door = admin_port(settings, flags)
        served.do(door.__aenter__())
        doors.append(door)
        scheme = "https" if more else "http"
        url = f"{scheme}://127.0.0.1:{settings.admin.port}"
        return Port(folder, url, TokenFile(settings.path(settings.admin.tokens)))

    try:
        yield make
    finally:
        for door in doors:
            served.do(door.__aexit__(None, None, None))
        served.close()
