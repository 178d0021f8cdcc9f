"""The admin port and its client, given what no honest caller gives."""

import asyncio
import gc
import json
import multiprocessing
import os
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

import oncewire
from oncewire.entry.admin import requests
from oncewire.entry.admin.app import LISTENERS_EACH, AdminApp
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.errors import InvalidValue
from tests.entry.admin.conftest import Rest

pytestmark = pytest.mark.process

READ, SUBMIT, TAKE = Permission.LOOK, Permission.SUBMIT, Permission.TAKE
MIXED = {"Content-Type": "multipart/mixed; boundary=a"}
DOCUMENT = (
    b"--z\r\nContent-Type: text/plain\r\n\r\none\r\n--z\r\n"
    b"Content-Type: text/plain\r\n\r\ntwo\r\n--z--\r\n"
)


def _post(rest: Rest, content: bytes, query: str = "", **headers: str) -> httpx.Response:
    where = f"/messages?to=globex{query}"
    return rest.call(SUBMIT, "POST", where, content=content, headers=headers)


def _word(found: httpx.Response) -> tuple[int, str]:
    return found.status_code, found.json()["type"].rpartition(":")[2]


async def test_a_fetched_document_is_read_whole_by_each_of_its_readers(rest: Rest) -> None:
    """Its size is no multiple of what is written or read at once."""
    large = os.urandom(1_310_820)

    async with (
        oncewire.connect(rest.url, rest.token("reader", Permission)) as party,
        oncewire.open_party(rest.settings.folder.parent / "globex") as partner,
    ):
        sent = await partner.send("acme", large, media_type="a/b")
        await partner.wait(sent.message_id, 60)
        (message,) = await party.take(timeout=float("1e999"))
        (payload,) = message.payloads
        first, second = payload.open(), payload.open()
        begun = first.read(10), second.read(10)
        assert begun[0] + first.read() == begun[1] + second.read() == large
        assert payload.open().read() == large
        await party.confirm(message)


@pytest.mark.parametrize(
    "media_type",
    [
        "multipart/mixed; boundary=z",
        "multipart/related; boundary=z",
        "multipart/form-data; boundary=z",
        "application/x-www-form-urlencoded",
    ],
)
@pytest.mark.parametrize("beside", [(), (b"another",)])
async def test_a_document_is_sent_as_it_is_whatever_its_media_type(
    rest: Rest, media_type: str, beside: tuple[bytes, ...]
) -> None:
    globex = rest.settings.folder.parent / "globex"
    async with (
        oncewire.connect(rest.url, rest.tokens[SUBMIT]) as party,
        oncewire.open_party(globex) as partner,
    ):
        sent = await party.send("globex", DOCUMENT, *beside, media_type=media_type)
        found: list[Any] = []
        while not found:
            taken = await partner.take(timeout=30)
            found = [each for each in taken if each.message_id == sent.message_id]
        payloads = found[0].payloads
        assert [payload.data for payload in payloads] == [DOCUMENT, *beside]
        assert payloads[0].media_type == media_type


def _add(path: Path, barrier: Any) -> None:
    barrier.wait()
    TokenFile(path).add("new", [READ])


def _remove(path: Path, barrier: Any) -> None:
    barrier.wait()
    TokenFile(path).remove("victim")


def test_tokens_that_are_changed_at_once_are_all_changed(tmp_path: Path) -> None:
    forked = multiprocessing.get_context("fork")
    for number in range(20):
        path = tmp_path / str(number) / "tokens.json"
        TokenFile(path).add("victim", [READ])
        barrier = forked.Barrier(2)
        both = [forked.Process(target=work, args=(path, barrier)) for work in (_add, _remove)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert [each.exitcode for each in both] == [0, 0]
        assert [token.name for token in TokenFile(path).tokens()] == ["new"]


@pytest.mark.parametrize(
    "way", [{"headers": {"Last-Event-ID": "1000000"}}, {"params": {"after": "1000000"}}]
)
def test_a_listener_beyond_the_end_of_the_journal_is_told_so(
    rest: Rest, way: dict[str, Any]
) -> None:
    with rest.client(READ) as client, client.stream("GET", "/events", **way) as told:
        assert told.status_code == 409
        said = json.loads(told.read())
    assert said["type"] == "urn:oncewire:problem:beyond-end"
    assert "begin anew" in said["next"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'Content-Disposition: attachment; filename="\x00"\r\n', (400, "part-head")),
        (b"X: y\r\n" * 20_000, (400, "part-head")),
        (b"X: " + b"y" * 20_000 + b"\r\n", (400, "part-head")),
        (b"Content-Transfer-Encoding: base64\r\n", (415, "encoding")),
        (b"Content-Transfer-Encoding: quoted-printable\r\n", (415, "encoding")),
    ],
)
def test_a_part_with_a_bad_head_is_refused(
    rest: Rest, head: bytes, expected: tuple[int, str]
) -> None:
    body = b"--a\r\n" + head + b"\r\naGVsbG8=\r\n--a--\r\n"
    assert _word(_post(rest, body, **MIXED)) == expected


def test_the_id_of_a_key_is_not_for_others_to_take(rest: Rest) -> None:
    first = _post(rest, b"x", "&file_name=a.xml", **{"Idempotency-Key": "k1"})
    message_id = first.json()["result"]["message_id"]
    taken = message_id.replace(message_id[:8], "00000000")
    assert _word(_post(rest, b"x", f"&message_id={taken}")) == (422, "invalid-value")
    same = _post(rest, b"x", "&file_name=a.xml", **{"Idempotency-Key": "k1"})
    assert (same.status_code, same.json()) == (201, first.json())
    other = _post(rest, b"x", "&file_name=b.xml", **{"Idempotency-Key": "k1"})
    assert _word(other) == (422, "key-reused")
    assert _post(rest, b"x", "&message_id=mine-1@acme").status_code == 201


@pytest.mark.parametrize(
    ("url", "ca"),
    [
        ("127.0.0.1:8610", None),
        ("ftp://127.0.0.1", None),
        ("http://127.0.0.1:8610/x", None),
        ("http://[", None),
        ("http://127.0.0.1:99999", None),
        ("https://127.0.0.1:8610", "/nope"),
        ("https://127.0.0.1:8610", __file__),
    ],
)
async def test_what_connect_cannot_use_is_named(url: str, ca: str | None) -> None:
    with pytest.raises(InvalidValue) as told:
        async with oncewire.connect(url, "ow_x", ca=ca):
            pass
    assert told.value.remedy


@pytest.mark.parametrize(
    "sending",
    [
        lambda party: party.send("globex", b"x", media_type="a\r\nb"),
        lambda party: party.send("globex", b"x", b"y", media_type="a\r\nb"),
        lambda party: party.send(
            "globex", b"x", options=oncewire.SendOptions(message_id="a\ud800b@x")
        ),
        lambda party: party.send("glo\ud800bex", b"x"),
    ],
)
async def test_what_cannot_be_sent_is_named(rest: Rest, sending: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidValue):
        async with oncewire.connect(rest.url, rest.tokens[SUBMIT]) as party:
            await sending(party)


def test_a_page_of_another_port_is_of_another_origin(rest: Rest) -> None:
    port = rest.settings.admin.port

    def asked(host: str, origin: str) -> int:
        headers = {"Host": host, "Origin": origin, "Authorization": f"Bearer {rest.tokens[READ]}"}
        return httpx.get(f"{rest.url}/livez", headers=headers, timeout=60).status_code

    for scheme in ("http", "https"):
        # Without a number it is the port of the scheme, where somebody else may listen.
        assert asked(f"127.0.0.1:{port}", f"{scheme}://127.0.0.1") == 403
        assert asked(f"127.0.0.1:{port}", f"{scheme}://127.0.0.1:{port}") == 200
        # A proxy in front is asked for as its own page says.
        assert asked("localhost", f"{scheme}://localhost") == 200
        assert asked("localhost", f"{scheme}://127.0.0.1") == 403


# It is the last one, because strangers of this address are told to wait from then on.
def test_an_origin_that_is_none_is_refused_and_counted(rest: Rest) -> None:
    with rest.client() as client:
        found = [client.get("/livez", headers={"Origin": "http://["}) for _ in range(70)]
    assert {each.status_code for each in found} == {403, 429}


async def _comes_slowly(request: Request, _app: AdminApp) -> None:
    with pytest.raises(requests.Refused, match="too slowly"):
        await requests.whole_body(request)


async def _listens_too_often(request: Request, app: AdminApp) -> None:
    def asked(_request: Request) -> None:
        app.positions("bob", 1.0, lambda: True)

    with pytest.raises(requests.Refused, match="listen already"):
        asked(request)


@pytest.mark.parametrize("refused", [_comes_slowly, _listens_too_often])
def test_a_call_that_was_refused_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., Any]
) -> None:
    """An error that is raised again and again keeps the locals of every call that it passed."""
    monkeypatch.setattr(requests, "PATIENCE", 0.01)
    app = object.__new__(AdminApp)
    app._feed = SimpleNamespace(listeners=Counter(bob=LISTENERS_EACH))  # type: ignore[assignment]
    request = Request({"type": "http", "headers": []}, asyncio.Event().wait)  # type: ignore[arg-type]
    kept = weakref.ref(request)
    asyncio.run(refused(request, app))
    del request
    gc.collect()
    assert kept() is None
