"""Two parties meet, and one changes its key, in the consoles of both: by browsers, over TLS."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from oncewire.entry.admin.server import admin_port
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.folder import FILE_MAX, KeyKind, card_of, make_party
from oncewire.entry.party.invitation import invite
from oncewire.entry.party.partners import PartnerOptions
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from oncewire.lab.demo.ways import FAIR, ChaosProxy
from tests.entry.console.conftest import PHONE, WIDE, Desk, Window
from tests.entry.served import Served
from tests.ports import free_port

pytestmark = pytest.mark.process

NAMES = ("acme", "globex")
SIGNED = PartnerOptions(sign=True, insecure=False)
ROUTES = ("invite", "accept", "accepted", "do")
FILES = ("card", "acceptance?digest=x")


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[dict[str, Desk]]:
    """acme and globex run with TLS and a console each, and know nothing of each other."""
    for name in NAMES:
        now, port = RealWorld().now(), free_port()
        make_party(tmp_path / name, name, now=now, port=port, tls=True, key_kind=KeyKind.EC)
    with Served(tmp_path, "acme", "globex") as served, ExitStack() as open_:
        found = {}
        for name in NAMES:
            flags = {"admin.port": free_port()}
            settings = load(tmp_path / name, environ={}, flags=flags).settings
            door = admin_port(settings, flags)
            served.do(door.__aenter__())
            open_.callback(lambda door=door: served.do(door.__aexit__(None, None, None)))
            found[name] = Desk(settings, served, ChaosProxy("none", 0, 1, FAIR))
        yield found


@contextmanager
def _window(desk: Desk, browser: Browser, size: tuple[int, int] = WIDE) -> Iterator[Window]:
    """A browser that is signed in; at the end nothing was amiss in it."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    found = Window(desk, context)
    found.sign_in()
    yield found
    context.close()
    # The page of an error has that error's status.
    assert [each for each in found.errors if "Failed to load resource" not in each] == []
    assert found.strangers == []


def _saved(page: Page, name: str, role: str, folder: Path) -> Path:
    """The file that a button or a link gives out."""
    with page.expect_download() as got:
        page.get_by_role(role, name=name).click()  # type: ignore[arg-type]
    file = folder / got.value.suggested_filename
    got.value.save_as(file)
    return file


def _shown(window: Window, file: Path) -> Page:
    """Upload a partner's file."""
    page = window.open("partners")
    page.get_by_label("file", exact=True).set_input_files(file)
    page.get_by_role("button", name="Look at it").click()
    expect(page.locator("h1")).to_be_visible()
    assert window.faults() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return page


def _agreed(page: Page, button: str) -> None:
    page.get_by_label("I compared").check()
    page.get_by_role("button", name=button).click()
    expect(page.locator(".done")).to_be_visible()


def _meet(acme: Window, globex: Window, folder: Path) -> None:
    page = acme.open("partners")
    page.get_by_label("in order").check()
    invitation = _saved(page, "Invitation", "button", folder)
    assert invitation.name.endswith(".invitation.toml")
    page = _shown(globex, invitation)
    settings = acme.desk.settings
    for told in ("urn:oncewire:party:acme", settings.endpoint_url, card_of(settings).fingerprint):
        expect(page.locator("main")).to_contain_text(told)
    assert not list((globex.desk.settings.folder / "agreements").glob("*.toml"))
    # A browser asks for it, and so does the server.
    page.get_by_role("button", name="Agree").click()
    expect(page.get_by_role("button", name="Agree")).to_be_visible()
    _agreed(page, "Agree")
    assert globex.faults() == []
    acceptance = _saved(page, "Acceptance", "link", folder)
    assert acceptance.name == "globex-acme.acceptance.toml"
    _agreed(_shown(acme, acceptance), "Agree")


def test_two_parties_meet_and_change_a_key_in_their_consoles(
    desks: dict[str, Desk], browser: Browser, tmp_path: Path
) -> None:
    with (
        _window(desks["acme"], browser) as acme,
        _window(desks["globex"], browser, PHONE) as globex,
    ):
        _meet(acme, globex, tmp_path)
        acme.page.get_by_role("button", name="Test", exact=True).click()
        expect(acme.page.locator("#test")).to_contain_text("Ended", timeout=90_000)
        tried = acme.page.locator("#test .checks li")
        assert tried.count() >= 8
        assert all("works" in each for each in tried.all_inner_texts())
        assert not [each for each in tried.all_inner_texts() if "does not work" in each]
        page = acme.open("partners")
        page.get_by_role("button", name="Make the next key").click()
        expect(page.locator(".done")).to_contain_text("The next key is made")
        assert acme.faults() == []
        card = _saved(page, "Our card", "link", tmp_path)
        fresh = card_of(acme.desk.settings).fingerprints[-1]
        shown = _shown(globex, card)
        expect(shown.locator("main")).to_contain_text(fresh)
        _agreed(shown, "Believe it")
        page.locator("summary", has_text="Use the next key").click()
        page.get_by_role("button", name="Use the next key").click()
        # Not before it is said that every partner has the card.
        assert card_of(acme.desk.settings).fingerprints != (fresh,)
        page.get_by_label("Every partner").check()
        page.get_by_role("button", name="Use the next key").click()
        expect(page.locator(".done")).to_contain_text("The next key is ours now.")
        assert card_of(acme.desk.settings).fingerprints == (fresh,)
        for window, partner in ((acme, "globex"), (globex, "acme")):
            page = window.open(f"partner?name={partner}")
            page.get_by_role("button", name="Ping").click()
            expect(page.locator(".done")).to_contain_text("It answered.")


def test_a_hostile_file_runs_nothing_and_writes_nothing(
    desks: dict[str, Desk], browser: Browser, tmp_path: Path
) -> None:
    acme, globex = desks["acme"].settings, desks["globex"].settings
    made = invite(acme, SIGNED).to_toml()
    evil = "urn:x:'\\\"><img src=x onerror=alert(1)><script>alert(2)</script>\u202e"
    hostile = {
        "shown.toml": made.replace("urn:oncewire:party:acme", evil),
        "name.toml": made.replace('name = "acme"', 'name = "<script>alert(3)</script>"'),
        "key.toml": f'"<script>alert(4)</script>" = 1\n{made}',
        "markup.toml": "<script>alert(5)</script>",
        "large.toml": "#" * (FILE_MAX + 1),
        "larger.toml": "#" * (FILE_MAX * 2),
    }
    with _window(desks["globex"], browser) as window:
        for name, text in hostile.items():
            file = tmp_path / name
            file.write_text(text)
            page = _shown(window, file)
            if name == "shown.toml":
                expect(page.locator("main")).to_contain_text("<script>alert(2)</script>\\u{202e}")
            else:
                assert page.locator("main form").count() == 0, name
                expect(page.locator("main")).to_contain_text(re.compile("no invitation|name|bytes"))
            assert page.locator("main img, main script").count() == 0
    assert not list((globex.folder / "agreements").glob("*"))
    assert not list((globex.folder / "keys" / "partners").glob("*"))


@contextmanager
def _client(desk: Desk, *roles: Permission) -> Iterator[tuple[httpx.Client, str]]:
    """A browser without a page, and the word of its session."""
    with httpx.Client(base_url=desk.url, timeout=60) as made:
        link = desk.link((Permission.LOOK, *roles)).partition("#")[2]
        made.post("/console/sign-in", data={"link": link})
        page = made.get("/console/partners").text
        yield made, re.findall(r'name="csrf" value="([0-9a-f]+)"', page)[0]


def test_only_what_was_shown_is_agreed(desks: dict[str, Desk]) -> None:
    acme, globex = desks["acme"].settings, desks["globex"]
    file, other = (invite(acme, SIGNED).to_toml().encode() for _ in range(2))
    digest, swapped = (sha256(each).hexdigest() for each in (file, other))
    operate = Permission.OPERATE
    with _client(globex, operate) as (client, csrf), _client(globex, operate) as (spy, word):
        sent = {"file": ("a.toml", file)}
        assert client.post("/console/accept", files=sent).status_code == 409
        assert client.post("/console/accept", data={"csrf": word}, files=sent).status_code == 409
        shown = client.post("/console/accept", data={"csrf": csrf}, files=sent)
        assert (shown.status_code, f'value="{digest}"' in shown.text) == (200, True)
        yes = {"csrf": csrf, "digest": digest, "compared": "yes", "once": "form-1"}
        for caller, given, status in (
            (client, yes | {"digest": swapped}, 404),
            (client, {name: yes[name] for name in ("csrf", "digest", "once")}, 409),
            (client, yes | {"csrf": word}, 409),
            # Shown to another session.
            (spy, yes | {"csrf": word}, 404),
        ):
            answer = caller.post("/console/accepted", data=given)
            assert answer.status_code == status, answer.text
        parts = b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n"
        nameless = b"--x\r\nContent-Disposition: form-data\r\n\r\nx\r\n--x--"
        for body in (b"", b"--x\r\n\r\n", nameless, parts * 2_000):
            said = {"Content-Type": "multipart/form-data; boundary=x"}
            answer = client.post("/console/accept", content=body, headers=said)
            assert answer.status_code == 422, answer.text
        assert not list((globex.settings.folder / "agreements").glob("*"))
        assert client.get(f"/console/acceptance?digest={digest}").status_code == 404
        # What was refused may be tried again; what was done is done once, and told again.
        for _ in range(2):
            done = client.post("/console/accepted", data=yes)
            assert done.status_code == 303, done.text
        assert f"acceptance={digest}" in done.headers["location"]
        assert client.get(f"/console/acceptance?digest={digest}").status_code == 200
        assert spy.get(f"/console/acceptance?digest={digest}").status_code == 404
        sure = {"csrf": csrf, "do": "switch-key", "sure": "yes", "fingerprint": "x"}
        sure["once"] = "form-2"
        assert client.post("/console/do", data=sure).status_code == 404


def test_who_only_reads_has_no_forms_and_makes_nothing(desks: dict[str, Desk]) -> None:
    acme = desks["acme"]
    with _client(acme) as (client, csrf):
        page = client.get("/console/partners").text
        # The one to sign out by.
        assert re.findall(r'<form method="post" action="([^"]+)"', page) == ["/console/sign-out"]
        assert card_of(acme.settings).fingerprint in page
        for path in ROUTES:
            answer = client.post(f"/console/{path}", data={"csrf": csrf, "do": "next-key"})
            assert answer.status_code == 403, path
        for path in FILES:
            assert client.get(f"/console/{path}").status_code == 403, path
    assert not list((acme.settings.folder / "agreements").glob("*"))
    assert len(list((acme.settings.folder / "keys").glob("*.crt"))) == 1
