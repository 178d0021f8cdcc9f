"""The console and strangers: slow forms, guessed links, damaged files, odd ids."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from oncewire.entry.admin import app
from oncewire.entry.admin.app import LISTENERS, LISTENERS_EACH
from oncewire.entry.console import searching
from oncewire.entry.console.pages import _cell
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.party.store import socket_path
from tests.entry.console.conftest import Desk
from tests.entry.console.test_console import journal_of
from tests.waiting import wait_until

pytestmark = pytest.mark.process
PROFILE = "ebms2"


def test_a_form_that_drips_keeps_no_place(desk: Desk) -> None:
    head = (
        "POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", desk.settings.admin.port), 60) as stranger:
        stranger.sendall(head.encode() + b"l")
        until = time.monotonic() + 50
        stranger.settimeout(1)
        answer = b""
        while not answer and time.monotonic() < until:
            try:
                answer = stranger.recv(1000)
            except TimeoutError:
                stranger.sendall(b"x")
    assert answer.startswith(b"HTTP/1.1 408")


def test_sessions_that_cannot_be_read_are_said_to_be(desk: Desk) -> None:
    file = desk.settings.path(desk.settings.console.sign_ins)
    link = desk.link().partition("#")[2]
    with httpx.Client(base_url=desk.url) as client:
        client.post("/console/sign-in", data={"link": link})
        kept = file.read_bytes()
        file.write_bytes(b"{")
        page = client.get("/console/")
        file.write_bytes(kept)
        assert page.status_code >= 400
        assert "sign" in page.text
        assert "Internal Server Error" not in page.text
        assert client.get("/console/").status_code == 200


def test_who_guesses_links_is_told_to_wait_and_writes_nothing(desk: Desk) -> None:
    file = desk.settings.path(desk.settings.console.sign_ins)
    desk.link()
    before = file.stat().st_mtime_ns
    said: list[int] = []
    with httpx.Client(base_url=desk.url, timeout=60) as client:
        # On a slow machine the address is forgiven some of them meanwhile.
        while 429 not in said and len(said) < 1_000:
            guess = {"link": f"guess-{len(said)}"}
            said.append(client.post("/console/sign-in", data=guess).status_code)
    assert set(said) == {403, 429}
    assert file.stat().st_mtime_ns == before


def test_an_id_is_no_option_and_no_formula() -> None:
    found = searching.wanted({"q": "--config=/tmp/evil"}, (), TABLE["find"])
    assert found.command == "oncewire find -- --config=/tmp/evil"
    assert [_cell(value) for value in ("=1", "＝1", "a")] == ["'=1", "'＝1", "a"]
    # Where a sheet is split at semicolons, a quoted cell may be too.
    assert _cell("PO;=1+1") == "PO;'=1+1"
    assert _cell('PO; "@SUM(1)\t-2\n+3') == "PO; \"'@SUM(1)\t'-2\n'+3"
    assert _cell("a;b, c-d=e") == "a;b, c-d=e"
    assert _cell(7) == 7


@contextmanager
def _signed_in(desk: Desk) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=desk.url, timeout=60) as made:
        made.post("/console/sign-in", data={"link": desk.link().partition("#")[2]})
        yield made


def test_an_address_says_of_nothing_that_it_was_done(desk: Desk) -> None:
    message_id = desk.send("PO-said@acme")
    with _signed_in(desk) as client, _signed_in(desk) as other:
        for word in ("abandon", "hold", ""):
            for name in ("done", "said"):
                assert 'class="done"' not in client.get(f"/console/?{name}={word}").text
        page = client.get(f"/console/message?id={message_id}").text
        # What is not signed proves nothing.
        assert "Evidence (zip)" not in page
        assert "No evidence: " in page
        csrf = re.findall(r'name="csrf" value="([0-9a-f]+)"', page)[0]
        once = re.findall(r'name="once" value="([^"]+)"', page)[0]
        asked = {"do": "hold", "message_id": message_id, "csrf": csrf, "back": "/console/"}
        # Without the word of a form nothing is done.
        assert client.post("/console/do", data=asked).status_code == 409
        asked["once"] = once
        said = client.post("/console/do", data=asked).headers["location"]
        assert 'class="done"' not in other.get(said).text
        assert "under legal hold" in client.get(said).text
        # It is said once.
        assert 'class="done"' not in client.get(said).text


def test_listeners_are_bounded_for_a_session_and_in_all(desk: Desk) -> None:
    with ExitStack() as open_:
        said = []
        for _ in range(4):
            client = open_.enter_context(_signed_in(desk))
            for _ in range(LISTENERS_EACH + 1):
                answer = open_.enter_context(client.stream("GET", "/console/live"))
                said.append(answer.status_code)
                if answer.status_code != 200:
                    assert "listen already" in answer.read().decode()
        assert said[: LISTENERS_EACH + 1] == [200] * LISTENERS_EACH + [429]
        assert said.count(200) == LISTENERS


def test_a_page_waits_for_no_handler_that_is_mute(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ANSWERS_WITHIN", 0.5)
    path = socket_path(desk.settings)
    with _signed_in(desk) as client:
        desk.served.stop("acme")
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(path))
            mute.listen(16)
            try:
                # The connection of before is gone: that is told at once.
                client.get("/console/")
                for page, status in (("", 200), ("messages", 503), ("channels", 503)):
                    answer = client.get(f"/console/{page}")
                    assert answer.status_code == status, (page, answer.text[:500])
                    assert "has not answered for" in answer.text
            finally:
                path.unlink(missing_ok=True)
                desk.served.start("acme")


def test_a_form_that_is_sent_twice_acts_once(desk: Desk) -> None:
    desk.cut()
    try:
        message_id = desk.send("PO-twice@acme")

        def failed() -> bool:
            return desk.do("show", message_id=message_id).facts["state"] == "unknown"  # type: ignore[attr-defined]

        with _signed_in(desk) as client:
            wait_until(failed)
            asked = _resend_form(client, message_id)
            told = [client.post("/console/do", data=asked).headers["location"] for _ in range(2)]
            assert "It is sent again" in client.get(told[0]).text
            assert "sent before, and acted once" in client.get(told[1]).text
            # It failed once more; the old form, found again by going back, does nothing.
            wait_until(failed)
            assert client.post("/console/do", data=asked).status_code == 303
            assert _resumed(desk, message_id) == 1
            again = _resend_form(client, message_id)
            assert again["once"] != asked["once"]
            client.post("/console/do", data=again)
            assert _resumed(desk, message_id) == 2
            page = client.get("/console/partners").text
            form = next(each for each in page.split("<form") if "/console/invite" in each)
            asked = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
            asked |= {"profile": "ebms2", "insecure": "yes"}
            files = {client.post("/console/invite", data=asked).text for _ in range(2)}
            assert len(files) == 1
            assert files.pop().count("id = ") >= 1
    finally:
        desk.heal()


def test_only_a_partner_can_be_tested(desk: Desk) -> None:
    with _signed_in(desk) as client:
        page = client.get("/console/partner?name=globex").text
        form = next(each for each in page.split("<form") if 'value="test"' in each)
        asked = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)) | {"partner": "nobody"}
        answer = client.post("/console/do", data=asked)
        assert answer.status_code == 404
        assert "nobody" in answer.text


def _resend_form(client: httpx.Client, message_id: str) -> dict[str, str]:
    page = client.get(f"/console/message?id={message_id}").text
    form = next(each for each in page.split("<form") if 'value="resend"' in each)
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))


def _resumed(desk: Desk, message_id: str) -> int:
    return sum(kind == "resumed" for kind, _ in journal_of(desk, message_id))
