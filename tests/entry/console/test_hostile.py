"""The console and strangers: slow forms, guessed links, damaged files, odd ids."""

import socket
import time

import httpx
import pytest

from oncewire.entry.console import searching
from oncewire.entry.console.pages import _cell
from oncewire.entry.control.verbs import TABLE
from tests.entry.console.conftest import Desk

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
    said = [
        httpx.post(f"{desk.url}/console/sign-in", data={"link": f"guess-{number}"}).status_code
        for number in range(70)
    ]
    assert set(said) == {403, 429}
    assert file.stat().st_mtime_ns == before


def test_an_id_is_no_option_and_no_formula() -> None:
    found = searching.wanted({"q": "--config=/tmp/evil"}, (), TABLE["find"])
    assert found.command == "oncewire find -- --config=/tmp/evil"
    assert [_cell(value) for value in ("=1", "＝1", "a")] == ["'=1", "'＝1", "a"]
