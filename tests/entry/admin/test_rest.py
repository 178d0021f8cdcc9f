"""The admin port, called as programs, watchers and strangers call it."""

import json
import logging
import os
import socket
import time
from pathlib import Path

import httpx
import pyarrow.ipc
import pytest

import oncewire
from oncewire.entry.admin import server
from oncewire.entry.admin.form import VERB_FORMS
from oncewire.entry.admin.tokens import TokenFile
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.folder import make_keys
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue, NotAllowed, TransportProblem
from oncewire.handler.world import RealWorld
from tests.entry.admin.conftest import Rest
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.process

READ, SUBMIT, TAKE, OPERATE = (
    Permission.LOOK, Permission.SUBMIT, Permission.TAKE, Permission.OPERATE,
)  # fmt: skip
XML = {"Content-Type": "application/xml"}


def _sent(rest: Rest, content: bytes = b"<order/>", **headers: str) -> httpx.Response:
    return rest.call(
        SUBMIT, "POST", "/messages?to=globex", content=content, headers={**XML, **headers}
    )


def _rows(rest: Rest, **query: int) -> list[dict[str, object]]:
    found = rest.call(READ, "GET", "/journal", params=query)
    return [json.loads(line) for line in found.text.splitlines()]


def _submitted(rest: Rest, message_id: str = "") -> list[dict[str, object]]:
    rows = [row for row in _rows(rest, limit=100_000) if row["kind"] == "submitted"]
    return [row for row in rows if message_id in ("", row["message_id"])]


def test_a_document_is_sent_once_under_its_key(rest: Rest) -> None:
    key = {"Idempotency-Key": "order-17"}
    sent = _sent(rest, **key)
    assert sent.status_code == 201, sent.text
    message_id = sent.json()["result"]["message_id"]
    waited = rest.call(READ, "GET", f"/messages/{message_id}/wait?timeout=30")
    assert waited.json() == {"result": "delivered"}
    again = _sent(rest, **key)
    assert (again.status_code, again.json()) == (201, sent.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    other = _sent(rest, b"<other/>", **key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:oncewire:problem:key-reused")
    place = f"/messages/{message_id}/payloads/1"
    whole = rest.call(TAKE, "GET", place)
    assert (whole.content, whole.headers["content-type"]) == (b"<order/>", "application/xml")
    part = rest.call(TAKE, "GET", place, headers={"Range": "bytes=1-5"})
    assert (part.status_code, part.content) == (206, b"order")
    assert rest.call(TAKE, "GET", place, headers={"Range": "bytes=8-"}).status_code == 416
    submitted = _submitted(rest, message_id)
    assert [json.loads(str(row["detail"]))["by"] for row in submitted] == ["submit"]
    assert rest.tokens[SUBMIT] not in rest.settings.path(rest.settings.admin.access_log).read_text()


async def test_the_client_has_the_verbs_of_an_open_party(rest: Rest) -> None:
    every = rest.token("app", Permission)
    large = os.urandom(2_000_000)
    async with (
        oncewire.connect(rest.url, every) as party,
        oncewire.open_party(rest.settings.folder.parent / "globex") as partner,
    ):
        sent = await party.send("globex", b"<order/>", large, media_type="application/xml")
        assert await party.wait(sent.message_id, 60) is oncewire.Outcome.DELIVERED
        message = next(each for each in await partner.take() if len(each.payloads) == 2)
        assert [payload.data for payload in message.payloads] == [b"<order/>", large]
        answer = await partner.submit(message.response("Accept", large, b"yes"))
        await partner.wait(answer.message_id, 60)
        (back,) = await party.take()
        assert [payload.data for payload in back.payloads] == [large, b"yes"]
        assert await party.confirm(back)
        assert (await party.status()).counts["in.confirmed"] == 1
        with pytest.raises(oncewire.UnknownMessage):
            await party.resend("nothing")
    taken = [row for row in _rows(rest, limit=100_000) if row["kind"] == "handed_over"]
    assert [json.loads(str(row["detail"]))["by"] for row in taken] == ["app"]


def test_events_go_on_where_a_listener_left(rest: Rest) -> None:
    seen: list[int] = []
    position = {}
    for number in range(3):
        _sent(rest, b"%d" % number)
        with (
            rest.client(READ) as client,
            client.stream("GET", "/events?after=0", headers=position) as told,
        ):
            for line in told.iter_lines():
                if line.startswith("id: "):
                    seen.append(int(line[4:]))
                    position = {"Last-Event-ID": line[4:]}
                if line.startswith("event: submitted") and len(seen) > 1 and number < 3:
                    break
    assert seen == list(range(1, len(seen) + 1))
    assert seen == [row["seq"] for row in _rows(rest, limit=len(seen))]


def test_every_route_wants_its_role(rest: Rest) -> None:
    page = rest.call(None, "GET", "/openapi.json").json()
    tried = 0
    for path, operations in page["paths"].items():
        for method, operation in operations.items():
            named = (
                path.replace("{message_id}", "m").replace("{number}", "1").replace("{part}", "p")
            )
            needs = operation["x-permission"]
            if needs == "open":
                assert path in ("/openapi.json", "/livez")
                continue
            for role in {None, *Permission} - {Permission(needs)}:
                found = rest.call(role, method.upper(), named)
                assert found.status_code == (401 if role is None else 403), (method, path, role)
                tried += 1
    assert tried >= 4 * len(VERB_FORMS)
    assert rest.call(READ, "GET", "/readyz").text == "ready\n"
    assert "oncewire_up 1.0" in rest.call(READ, "GET", "/metrics").text


def test_a_browser_at_the_root_comes_to_the_console(rest: Rest) -> None:
    pages = {"Accept": "text/html,application/xhtml+xml"}
    found = rest.call(None, "GET", "/", headers=pages)
    assert (found.status_code, found.headers["location"]) == (303, "/console/")
    assert rest.call(None, "GET", "/").status_code == 404
    assert rest.call(None, "GET", "/nowhere", headers=pages).status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Authorization": "Bearer ow_wrong"}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Idempotency-Key": "x" * 300}, 422),
    ],
)
def test_a_stranger_s_tricks_are_refused(rest: Rest, headers: dict[str, str], status: int) -> None:
    before = _submitted(rest)
    found = rest.call(SUBMIT, "POST", "/messages?to=globex", content=b"x", headers=headers)
    assert (found.status_code, found.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert _submitted(rest) == before


def test_large_slow_and_silent_callers_are_cut_off(rest: Rest) -> None:
    too_large = rest.call(SUBMIT, "POST", "/messages?to=globex", content=bytes(5_000_000))
    assert too_large.status_code == 413
    too_long = rest.call(READ, "GET", "/status?" + "x" * 20_000)
    assert too_long.status_code == 414
    head = (
        "POST /messages?to=globex HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        f"Authorization: Bearer {rest.tokens[SUBMIT]}\r\n\r\n"
    )
    where = ("127.0.0.1", rest.settings.admin.port)
    with socket.create_connection(where) as silent, socket.create_connection(where) as slow:
        silent.sendall(b"GET /livez HT")
        slow.sendall(head.encode() + b"x")
        for each in (silent, slow):
            each.settimeout(90)
        assert silent.recv(100) == b""
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_removed_token_ends_what_it_listens_to(rest: Rest) -> None:
    tokens = TokenFile(rest.settings.path(rest.settings.admin.tokens))
    secret = rest.token("watcher", [READ])
    headers = {"Authorization": f"Bearer {secret}"}
    with rest.client() as client, client.stream("GET", "/events", headers=headers) as told:
        tokens.remove("watcher")
        _sent(rest)
        assert len(list(told.iter_lines())) < 1000
        assert client.get("/status", headers=headers).status_code == 401


def test_the_summary_of_the_lake_is_served(rest: Rest) -> None:
    assert rest.call(READ, "GET", "/ledger").status_code == 404
    lake = rest.settings.path(rest.settings.lake.path or Path())
    (lake / "summary.json").write_text('{"version": 3, "findings": [{"kind": "lost"}]}')
    assert rest.call(READ, "GET", "/ledger").json() == {"result": {"version": 3}}
    assert rest.call(READ, "GET", "/ledger/findings").json() == {"result": [{"kind": "lost"}]}
    assert rest.call(READ, "GET", "/ledger/nothing").status_code == 404


def test_the_journal_as_arrow_has_the_rows_of_its_lines(rest: Rest) -> None:
    _sent(rest)
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    for query in ("?limit=100000", "?after=3&limit=2", "?after=1000000"):
        lines = rest.call(READ, "GET", "/journal" + query).text.splitlines()
        given = rest.call(READ, "GET", "/journal" + query, headers=accept)
        table = pyarrow.ipc.open_stream(given.content).read_all()
        rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
        assert rows[: len(lines)] == [json.loads(line) for line in lines]
    assert table.num_rows == 0
    assert table.schema.field("seq").type == pyarrow.int64()


def test_over_tls_a_client_speaks_to_the_certificate_that_it_was_given(
    rest: Rest, tmp_path: Path
) -> None:
    ours, other = (make_keys(tmp_path, name, now=RealWorld().now()) for name in ("admin", "other"))
    flags = {
        "admin.port": free_port(), "admin.host": "0.0.0.0",
        "admin.certificate": str(ours.certificate), "admin.key": str(ours.key),
    }  # fmt: skip
    settings = load(rest.settings.folder, environ={}, flags=flags).settings
    url, token = f"https://127.0.0.1:{settings.admin.port}", rest.tokens[READ]

    async def work() -> None:
        async with server.admin_port(settings, flags):
            async with oncewire.connect(url, token, ca=ours.certificate) as party:
                assert await party.status()
            for stranger in (None, other.certificate):
                async with oncewire.connect(url, token, ca=stranger) as party:
                    with pytest.raises(TransportProblem, match="ca=FILE"):
                        await party.status()
            with pytest.raises(httpx.TransportError), httpx.Client() as clear:
                clear.get(f"http://127.0.0.1:{settings.admin.port}/livez")

    rest.served.do(work())


def test_off_this_machine_there_is_no_port_without_tls(pair: Path) -> None:
    settings = load(pair / "acme", environ={}, flags={"admin.host": "0.0.0.0"}).settings
    with pytest.raises(InvalidValue, match="without TLS"):
        server.check_settings(settings)


async def test_without_its_libraries_the_handler_runs_and_says_so(
    pair: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load(pair / "acme", environ={}, flags={"admin.port": free_port()}).settings
    monkeypatch.setattr(server, "is_installed", lambda _extra: False)
    monkeypatch.setattr(logging.getLogger("oncewire"), "propagate", True)

    async with server.admin_port(settings, {}):
        assert "not installed" in caplog.text


def test_tokens_are_kept_as_hashes_that_only_the_owner_reads(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "keys" / "tokens.json")
    secret = file.add("app", [SUBMIT])
    kept = tmp_path / "keys" / "tokens.json"
    assert secret not in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert file.find(secret) is not None
    with pytest.raises(NotAllowed):
        file.add("app", [READ])
    kept.chmod(0o644)
    os.utime(kept)
    with pytest.raises(InvalidValue, match="can read"):
        file.find(secret)


def test_the_port_comes_back_when_its_process_dies(rest: Rest) -> None:
    def answers() -> bool:
        try:
            return rest.call(None, "GET", "/livez").status_code == 200
        except httpx.TransportError:
            return False

    assert answers()
    (pid,) = _children_named("oncewire.entry.admin.server")
    os.kill(pid, 9)
    time.sleep(0.1)
    wait_until(answers)


# It is the last one, because strangers of this address are told to wait from then on.
def test_who_guesses_tokens_is_told_to_wait_and_others_are_served(rest: Rest) -> None:
    with rest.client() as client:
        wait_until(lambda: client.get("/status").status_code == 429)
    assert rest.call(READ, "GET", "/status").status_code == 200


def _children_named(text: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if text in line and parent == os.getpid():
            found.append(int(folder.name))
    return found
