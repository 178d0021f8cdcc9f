"""acme's console in a browser, while acme and globex run with a network between them that can be
cut."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from oncewire.entry.admin.server import admin_port
from oncewire.entry.cli.config import link_to
from oncewire.entry.control.client import Remote
from oncewire.entry.control.verb import Permission
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.folder import read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner, with_values
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.party.store import socket_path
from oncewire.lab.demo.ways import FAIR, ChaosProxy, Weather
from oncewire.message.envelope import Payload
from tests.entry.served import Served
from tests.ports import free_port

AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text(encoding="utf-8")
WIDE, PHONE = (1280, 860), (390, 844)
EVERY_ROLE = (Permission.LOOK, Permission.TAKE, Permission.OPERATE)

TERMS = {
    "delivery.timeout": '"PT0.5S"',
    "delivery.retry_interval": '"PT0.5S"',
    "delivery.retries": "2",
    "payload.index": '["//order/@id"]',
}


class Desk:
    """The parties, the network between them, and pages of acme's console."""

    def __init__(self, settings: Settings, served: Served, proxy: ChaosProxy) -> None:
        self.settings, self.served, self._proxy = settings, served, proxy
        self.url = f"http://127.0.0.1:{settings.admin.port}"

    def cut(self) -> None:
        """Nothing gets through to globex."""
        self._proxy.weather = Weather(lost=1.0)

    def heal(self) -> None:
        """The network is as it should be."""
        self._proxy.weather = FAIR

    def link(self, roles: Iterable[Permission] = EVERY_ROLE, by: str = "alice") -> str:
        """A link for one sign-in."""
        return link_to(self.settings, tuple(roles), by)

    def do(self, verb: str, **given: object) -> object:
        """Have a verb done by acme's handler, as a command does."""

        async def done() -> object:
            remote = Remote(socket_path(self.settings))
            try:
                return await getattr(remote, verb)(**given)
            finally:
                await remote.close()

        return self.served.do(done())

    def send(
        self, message_id: str, data: bytes = b'<order id="PO-1"/>', file_name: str = "order.xml"
    ) -> str:
        """Have acme send a document to globex."""
        agreement = find_agreement(load_readable(self.settings), "globex")
        payload = Payload.of("order@acme", "application/xml", data, file_name)
        options = SendOptions(message_id=message_id, conversation_id="orders")
        submission = submission_of(agreement, [payload], options, ("http",), "test")
        self.do("send", submission=submission)
        return message_id

    def delivered(self, message_id: str) -> None:
        """Wait until a message is delivered."""
        assert self.do("wait", message_id=message_id, timeout=60.0) == "delivered"


class Window:
    """A page of a browser, and everything it complained of or asked of others."""

    def __init__(self, desk: Desk, context: BrowserContext) -> None:
        self.desk, self.context = desk, context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.desk.url, "data:", "blob:")):
            self.strangers.append(url)

    def sign_in(self, roles: Iterable[Permission] = EVERY_ROLE, by: str = "alice") -> Page:
        """Sign in by a link."""
        self.page.goto(self.desk.link(roles, by))
        self.page.wait_for_url(f"{self.desk.url}/console/")
        return self.page

    def open(self, path: str) -> Page:
        """Go to a page of the console."""
        self.page.goto(f"{self.desk.url}/console/{path}")
        return self.page

    def faults(self) -> list[str]:
        """What axe finds that is serious, in the page as it is."""
        # By the debugger, which the page's policy does not bind.
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"][:3]
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a screen.

    While it is open this thread has a running event loop, so it is closed with its module.
    """
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: sudo apt-get install chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


def made_pair(
    folder: Path, port: int, through: int, flags: dict[str, object], profile: str, sign: bool
) -> Settings:
    """acme and globex as partners; globex listens on a port, and is reached through another."""
    public = f'"http://127.0.0.1:{through}/msh"'
    said_of = {
        "acme": {"http.port": str(free_port()), "console.with": '["../globex", "../gone"]'},
        "globex": {"http.port": str(port), "http.public_url": public},
    }
    for name, said in said_of.items():
        file = folder / name / "oncewire.toml"
        said["log.file"] = '"data/handler.log"'
        file.write_text(with_values(file.read_text(), said))
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        settings = load(folder / own, environ={}).settings
        options = PartnerOptions(profile, sign=sign)
        added = add_partner(settings, read_card(folder / partner), options)
        added.agreement.write_text(with_values(added.agreement.read_text(), TERMS))
    (folder / "lake").mkdir()
    return load(folder / "acme", environ={}, flags=flags).settings


@pytest.fixture(scope="module")
def desk(
    request: pytest.FixtureRequest, pattern: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """Both handlers and acme's admin port, for all tests of a module, which names the profile, and
    says whether everything is signed."""
    folder = tmp_path_factory.mktemp("console") / "parties"
    shutil.copytree(pattern, folder)
    sign = getattr(request.module, "SIGN", False)
    with running(folder, request.module.PROFILE, sign=sign) as found:
        yield found


@contextmanager
def running(folder: Path, profile: str = "window", *, sign: bool = False) -> Iterator[Desk]:
    """acme, globex and acme's admin port; the parties of the folder know no one yet."""
    flags = {"admin.port": free_port(), "lake.path": "../lake"}
    network, port = Served(folder), free_port()
    proxy = ChaosProxy("to globex", port, 1, FAIR)
    try:
        settings = made_pair(folder, port, network.do(proxy.start()), flags, profile, sign)
        with Served(folder, "acme", "globex") as served:
            door = admin_port(settings, flags)
            served.do(door.__aenter__())
            try:
                yield Desk(settings, served, proxy)
            finally:
                served.do(door.__aexit__(None, None, None))
    finally:
        network.do(proxy.stop())
        network.close()


@pytest.fixture
def window(desk: Desk, browser: Browser) -> Iterator[Window]:
    """A wide page of a browser that is not signed in; at the end nothing was amiss in it."""
    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
    found = Window(desk, context)
    yield found
    context.close()
    assert found.errors == []
    assert found.strangers == []
