"""Ways to the application: what arrives, how often, in which order, and what a crash repeats."""

import asyncio
import base64
import fcntl
import hashlib
import hmac
import io
import json
import os
import secrets
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from oncewire.entry import files
from oncewire.entry.delivery import directory, function, webhook
from oncewire.entry.delivery.function import application_of
from oncewire.entry.delivery.received_message import ReceivedMessage, message_from
from oncewire.entry.files import write_new
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue, NotAllowed, TransportProblem
from oncewire.handler.actions import Notice, Submission
from oncewire.message.envelope import Payload, Severity
from oncewire.message.file_name import disposition
from oncewire.message.ids import Service
from oncewire.message.payload import DistantPayload
from oncewire.protocol.states import Outcome
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.handler.test_streams import MEGABYTE, LongContent
from tests.waiting import wait_until

MESSAGE = ReceivedMessage(
    "urn:a", "../../etc/passwd", "talk", "cpa", "urn:a", "urn:b", "urn:s", "New",
    "2026-01-05T10:00:00Z",
    payloads=(Payload.of("x@test", "text/xml; charset=utf-8", b"<a/>"),),
)  # fmt: skip


def choose(folder: Path, **said: str) -> None:
    """Set values of [application] of globex."""
    file = folder / "globex" / "oncewire.toml"
    changes = {f"application.{name}": f'"{value}"' for name, value in said.items()}
    file.write_text(with_values(file.read_text(), changes))


def send(tmp_path: Path, count: int, *words: str) -> None:
    """Send so many numbered documents from acme and wait until all are acknowledged."""
    files = []
    for number in range(count):
        file = tmp_path / f"{number}.txt"
        file.write_text(f"document {number}")
        files.append(file)
    found = run_json("send", *files, "--each", "--wait", *words)
    assert {one["state"] for one in found["messages"]} == {"delivered"}


def until_confirmed(folder: Path, count: int) -> None:
    """Wait until so many messages are confirmed at globex."""

    def status() -> dict[str, Any]:
        return run_json("status", "-c", folder / "globex")

    wait_until(lambda: status()["in.confirmed"] == count, status)


# --- directory ---------------------------------------------------------------------------------


def test_files_are_named_by_nothing_a_partner_writes(tmp_path: Path) -> None:
    first = directory.put_message(tmp_path, MESSAGE)
    assert [path.parent for path in first] == [tmp_path, tmp_path]
    assert first[0].read_bytes() == b"<a/>"
    facts = json.loads(first[-1].read_text())
    assert facts["message_id"] == "../../etc/passwd"
    assert facts["payloads"][0]["file"] == first[0].name
    # Again: the same names, nothing more.
    assert directory.put_message(tmp_path, MESSAGE) == first
    assert sorted(tmp_path.iterdir()) == sorted(first)


def test_a_file_that_is_put_twice_at_once_is_whole_each_time(tmp_path: Path) -> None:
    """Whoever stopped waiting did not stop the thread, and then it is handed over again."""
    path, content = tmp_path / "order.xml", b"<a/>" * 1000

    class Late(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            piece = super().read(100)
            if self.tell() == 200:
                directory.put_file(path, io.BytesIO(content))
                assert path.read_bytes() == content
            return piece

    directory.put_file(path, Late(content))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_two_senders_may_use_one_message_id(tmp_path: Path) -> None:
    other = replace(MESSAGE, sender="urn:c")
    names = {*directory.put_message(tmp_path, MESSAGE), *directory.put_message(tmp_path, other)}
    assert len(names) == 4
    assert webhook.event_of(MESSAGE)["id"] != webhook.event_of(other)["id"]


def test_a_file_that_cannot_have_its_name_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "order.xml").mkdir()
    with pytest.raises(NotAllowed, match="cannot be written"):
        directory.put_file(tmp_path / "order.xml", io.BytesIO(b"<a/>"))
    assert [path.name for path in tmp_path.iterdir()] == ["order.xml"]


def test_two_messages_with_one_content_are_two_files(tmp_path: Path) -> None:
    other = message_from({**MESSAGE.facts(), "message_id": "other"}, [b"<a/>"])
    names = {*directory.put_message(tmp_path, MESSAGE), *directory.put_message(tmp_path, other)}
    assert len(names) == 4


@pytest.mark.requirement("RM-13")
def test_a_directory_gets_everything_once(pair: Path, tmp_path: Path) -> None:
    choose(pair, way="directory")
    with Served(pair, "globex", "acme"):
        send(tmp_path, 5)
        until_confirmed(pair, 5)
    folder = pair / "globex" / "data" / "inbox"
    contents = sorted(path.read_text() for path in folder.glob("*.txt"))
    assert contents == [f"document {number}" for number in range(5)]
    assert len(list(folder.glob("*.message.json"))) == 5
    run("verify", pair / "acme", pair / "globex", "--ended")


# --- webhook -----------------------------------------------------------------------------------


class Hook:
    """An application that is called: refuses as often as it is told to, then takes."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[str] = []
        self.refusals = 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.calls.append((dict(self.headers), body))
                refused = hook.refusals > 0
                hook.refusals -= 1
                if not refused:
                    data = json.loads(body)["data"]["payloads"][0]["data_base64"]
                    hook.taken.append(base64.b64decode(data).decode())
                self.send_response(503 if refused else 204)
                self.send_header("Set-Cookie", "number=7")
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/in"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_webhook_gets_signed_events_until_it_takes_them(
    pair: Path, tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncewire.handler.runtime.offers.FIRST_PAUSE", 0.05)
    hook.refusals = 3
    choose(pair, way="webhook", url=hook.url, secret="whsec_c2VjcmV0")
    with Served(pair, "globex", "acme"):
        send(tmp_path, 1)
        until_confirmed(pair, 1)
    assert hook.taken == ["document 0"]
    assert len(hook.calls) == 4
    # The same event each time, under the same id.
    assert len({headers["webhook-id"] for headers, _ in hook.calls}) == 1
    headers, body = hook.calls[-1]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(b"secret", signed, "sha256")
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    event = json.loads(body)
    assert event["specversion"] == "1.0"
    assert event["id"] == headers["webhook-id"]
    assert event["type"] == "org.oncewire.message.delivered"
    assert headers["Content-Type"].startswith("application/cloudevents+json")


@pytest.mark.requirement("RM-13")
def test_a_channel_waits_for_its_webhook(
    pair: Path, tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncewire.handler.runtime.offers.FIRST_PAUSE", 0.02)
    agree(pair, {"sequence.ordered": "true"})
    choose(pair, way="webhook", url=hook.url, secret="hush")
    with Served(pair, "globex", "acme"):
        hook.refusals = 5
        send(tmp_path, 8, "--conversation", "talk")
        until_confirmed(pair, 8)
    assert hook.taken == [f"document {number}" for number in range(8)]
    run("verify", pair / "acme", pair / "globex", "--ended")


def test_a_webhook_needs_an_address_and_a_secret() -> None:
    with pytest.raises(InvalidValue, match=r"application\.url"):
        webhook.Webhook("ftp://x", "hush")
    for secret in ("", "whsec_not base64!"):
        with pytest.raises(InvalidValue, match="secret"):
            webhook.Webhook("http://x", secret)


async def test_nothing_that_a_webhook_answers_is_kept_or_sent_back(hook: Hook) -> None:
    # By name: of a number no client keeps a cookie.
    called = webhook.Webhook(hook.url.replace("127.0.0.1", "localhost"), "hush", timeout=5)
    for _ in range(2):
        await called._posts.post(webhook.event_of(MESSAGE))
    await called.close()
    assert len(hook.calls) == 2
    assert [headers.get("Cookie") for headers, _ in hook.calls] == [None, None]


async def test_a_webhook_that_is_not_there_is_trouble_not_a_crash() -> None:
    gone = webhook.Webhook("http://127.0.0.1:9/", "hush", timeout=5)
    words = "^the webhook cannot connect to 127.0.0.1 port 9: connection refused$"
    with pytest.raises(TransportProblem, match=words):
        await gone._posts.post(webhook.event_of(MESSAGE))
    await gone.close()


# --- function ----------------------------------------------------------------------------------

MODULE = """
from oncewire.handler.actions import Submission
from oncewire.message.envelope import Severity
from oncewire.message.ids import Service

calls = []

def answer(message):
    calls.append(message)
    if len(calls) == 1:
        raise RuntimeError("not now")
    return [
        Submission(
            message.cpa_id, Service("urn:test"), "Answer", message.payloads,
            ref_to_message_id=message.message_id, conversation_id=message.conversation_id,
        )
    ]
"""


@pytest.mark.requirement("RM-13")
def test_what_a_function_returns_is_sent_once(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncewire.handler.runtime.offers.FIRST_PAUSE", 0.05)
    (tmp_path / "shop_for_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    choose(pair, way="function", function="shop_for_test:answer")
    with Served(pair, "globex", "acme"):
        send(tmp_path, 1)
        wait_until(lambda: run_json("status")["in.ready"] == 1, lambda: run_json("status"))
        (reply,) = run_json("inbox", "take")["messages"]
        assert reply["action"] == "Answer"
        run("inbox", "confirm", reply["message_id"])
    calls = sys.modules["shop_for_test"].calls
    assert len(calls) == 2
    assert calls[0].message_id == calls[1].message_id
    assert len(run_json("outbox", "-c", pair / "globex")["messages"]) == 1


def test_functions_are_named_by_module_and_name(tmp_path: Path) -> None:
    assert function.find_function("json:dumps") is json.dumps
    for bad in ("json", "json:", ":dumps", "json:nothing", "no.such.module:x", "json:__name__"):
        with pytest.raises(InvalidValue):
            function.find_function(bad)


async def test_a_function_may_be_a_coroutine_and_must_return_submissions() -> None:
    one = Submission("cpa", Service("urn:test"), "New")

    async def good(_message: ReceivedMessage) -> Submission:
        return one

    def bad(_message: ReceivedMessage) -> list[int]:
        return [1]

    class Asked:
        """A hand-over whose header is never looked at."""

    taken: Any = Asked()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, "message_of", lambda _taken: MESSAGE)
        assert await function.Function(good).deliver(taken) == (one,)
        with pytest.raises(InvalidValue, match="int"):
            await function.Function(bad).deliver(taken)


@pytest.mark.parametrize("problem", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "coroutine"])
def test_a_function_that_wants_to_end_the_process_only_refuses(
    problem: type[BaseException], coroutine: bool
) -> None:
    def plain(what: object) -> None:
        raise problem

    async def awaited(what: object) -> None:
        raise problem

    chosen = awaited if coroutine else plain
    chosen.failed = chosen  # type: ignore[attr-defined]
    application = function.Function(chosen)
    notice = Notice("m", Severity.ERROR, Outcome.NOT_DELIVERED, "why", "m#1")
    with pytest.raises(NotAllowed, match=problem.__name__):
        asyncio.run(application.notify(notice))


def test_the_settings_choose_the_way(pair: Path) -> None:
    def chosen() -> object:
        return application_of(load(pair / "globex", environ={}).settings)

    assert chosen() is None
    choose(pair, way="directory")
    assert isinstance(chosen(), directory.Directory)
    choose(pair, way="webhook", url="http://x/", secret="hush")
    assert isinstance(chosen(), webhook.Webhook)
    choose(pair, way="function", function="json:dumps")
    assert isinstance(chosen(), function.Function)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_only_2xx_takes_an_event(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answered:
        """A response with that status, and the session that brings it."""

        def __init__(self) -> None:
            self.status = status

        async def __aenter__(self) -> "Answered":
            return self

        async def __aexit__(self, *_problem: object) -> None:
            return None

        async def post(self, *_given: object, allow_redirects: bool, **_more: object) -> "Answered":
            assert not allow_redirects, "nobody else is given the document"
            return self

    hook = webhook.Webhook("http://hook", "hush")
    monkeypatch.setattr(hook._posts, "_open", Answered)
    with pytest.raises(TransportProblem, match=str(status)):
        asyncio.run(hook._posts.post(webhook.event_of(MESSAGE)))


def test_each_failure_of_a_message_is_an_event_of_its_own() -> None:
    def event(notice_id: str) -> object:
        outcome = Outcome.NOT_DELIVERED
        return webhook.failure_of(Notice("m", Severity.ERROR, outcome, "why", notice_id))["id"]

    assert event("m#1") == event("m#1")
    assert event("m#1") != event("m#2")


def test_a_file_has_its_name_when_its_content_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.replace

    def synced(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        steps.append(f"{kind} synced")
        fsync(handle)

    def renamed(path: str, target: str, **folders: int) -> None:
        steps.append("named")
        rename(path, target, **folders)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    directory.put_file(tmp_path / "order.xml", io.BytesIO(b"<a/>"))
    assert steps == ["file synced", "named", "folder synced"]


def test_a_large_document_is_read_as_it_is_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, for it is signed before it is sent; and it is never whole."""
    posted: dict[str, Any] = {}
    content = LongContent(2 * MEGABYTE + 1)
    large = DistantPayload(
        "doc@x",
        "text/plain",
        content.size,
        content.digest(),
        content=content,
        mime_headers=disposition("a.txt"),
    )
    message = replace(MESSAGE, payloads=(large, *MESSAGE.payloads))

    class Session:
        """Reads what is posted piece by piece."""

        status = 204

        async def post(self, _url: str, *, data: Any, headers: dict[str, str], **_: Any) -> Any:
            pieces = [piece async for piece in data]
            posted.update(body=b"".join(pieces), longest=max(map(len, pieces)), headers=headers)
            return self

        async def __aenter__(self) -> None:
            return

        async def __aexit__(self, *_: object) -> None:
            return

    hook = webhook.Webhook("http://hook", "hush")
    monkeypatch.setattr(hook._posts, "_open", Session)
    monkeypatch.setattr(webhook, "message_of", lambda taken: taken)
    asyncio.run(hook.deliver(message))  # type: ignore[arg-type]
    body, headers = posted["body"], posted["headers"]
    assert len(body) == int(headers["Content-Length"])
    assert posted["longest"] < 1.5 * MEGABYTE
    when = int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == webhook.signature(
        b"hush", headers["webhook-id"], when, [body]
    )
    first, *rest = json.loads(body)["data"]["payloads"]
    assert first["file_name"] == "a.txt"
    found = base64.b64decode(first["data_base64"])
    assert hashlib.sha256(found).hexdigest() == first["sha256"] == content.digest()
    assert base64.b64decode(rest[0]["data_base64"]) == MESSAGE.payloads[0].data


def test_a_partners_name_is_part_of_a_files_name_and_no_more(tmp_path: Path) -> None:
    names = ["order.xml", "../../up.xml", "x.message.json", "half.part", "CON"]
    payloads = tuple(
        Payload.of(f"{number}@x", "text/plain", b"x", name) for number, name in enumerate(names)
    )
    *written, facts = directory.put_message(tmp_path, replace(MESSAGE, payloads=payloads))
    assert [path.name.split(".", 2)[2] for path in written] == [
        "order.xml",
        "up.xml",
        "x.message.json.bin",
        "half.part.bin",
        "_CON",
    ]
    assert {path.parent for path in written} == {tmp_path}
    described = json.loads(facts.read_text())["payloads"]
    assert [one["file_name"] for one in described[:2]] == ["order.xml", "up.xml"]
    assert [one["file"] for one in described] == [path.name for path in written]


def test_what_a_killed_process_had_begun_goes_when_it_is_put_again(tmp_path: Path) -> None:
    path = tmp_path / "order [7].xml"
    left = tmp_path / f".{path.name}.{'0' * 16}.part"
    others = [
        tmp_path / f".other.xml.{'0' * 16}.part",
        tmp_path / f".{path.name}.somebody.part",
    ]
    for half in (left, *others):
        half.write_bytes(b"half")
    written = tmp_path / f".{path.name}.{'1' * 16}.part"
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        directory.put_file(path, io.BytesIO(b"whole"))
    assert path.read_bytes() == b"whole"
    assert sorted(tmp_path.iterdir()) == sorted([path, written, *others])
    # When the handler starts, what is left of any file goes; what is not ours stays.
    link = tmp_path / f".link.xml.{'2' * 16}.part"
    link.symlink_to(path)
    os.mkfifo(tmp_path / f".pipe.xml.{'3' * 16}.part")
    directory.Directory(tmp_path)
    kept = {path, others[1], link, tmp_path / f".pipe.xml.{'3' * 16}.part"}
    assert set(tmp_path.iterdir()) == kept


def planted(folder: Path, name: str, victim: Path) -> None:
    """Links to a file of ours under each name that could be known beforehand."""
    for number in range(1, 500):
        (folder / f".{name}.{os.getpid()}-{number}.part").symlink_to(victim)
    (folder / f".{name}.new").symlink_to(victim)
    (folder / name).symlink_to(victim)


def test_nothing_is_written_through_a_link_that_others_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "shared"
    victim.write_bytes(b"ours")
    folder.mkdir()
    planted(folder, "order.xml", victim)
    directory.put_file(folder / "order.xml", io.BytesIO(b"<a/>"))
    write_new(folder / "order.xml", b"<b/>", replace=True)
    assert victim.read_bytes() == b"ours"
    assert not (folder / "order.xml").is_symlink()
    assert (folder / "order.xml").read_bytes() == b"<b/>"
    # Even under the very name that is drawn: then it is not written at all, and goes on later.
    drawn = folder / f".new.xml.{'0' * 16}.part"
    for plant in (lambda: drawn.symlink_to(victim), lambda: os.link(victim, drawn)):
        with monkeypatch.context() as patched:
            patched.setattr(secrets, "token_hex", lambda _size: "0" * 16)
            plant()
            if not drawn.is_symlink():
                # A second name of a file of ours looks like one that we left.
                patched.setattr(files, "_clear", lambda *_names: None)
            with pytest.raises(NotAllowed, match="cannot be written"):
                directory.put_file(folder / "new.xml", io.BytesIO(b"<a/>"))
        assert victim.read_bytes() == b"ours"
        drawn.unlink(missing_ok=True)
    directory.put_file(folder / "new.xml", io.BytesIO(b"<a/>"))
    assert (folder / "new.xml").read_bytes() == b"<a/>"


@pytest.mark.requirement("RM-13")
def test_links_in_a_delivery_folder_lead_a_handler_nowhere(pair: Path, tmp_path: Path) -> None:
    """Whoever may write there knows a MessageId, and so the names that the files will have."""
    folder, victim = pair / "globex" / "data" / "inbox", tmp_path / "victim"
    victim.write_text("ours")
    folder.mkdir(parents=True, exist_ok=True)
    choose(pair, way="directory")
    sender = load(pair / "acme", environ={}).settings.party.party_id
    message = replace(MESSAGE, sender=sender, message_id="m-1@acme")
    file = tmp_path / "order.txt"
    file.write_text("document")
    with Served(pair, "globex") as served:
        for ending in ("1.order.txt", "message.json"):
            planted(folder, f"{directory.name_of(message)}.{ending}", victim)
        served.start("acme")
        run_json("send", file, "--wait", "--message-id", message.message_id)
        until_confirmed(pair, 1)
    facts = folder / f"{directory.name_of(message)}.message.json"
    assert not facts.is_symlink()
    assert json.loads(facts.read_text())["message_id"] == message.message_id
    assert victim.read_text() == "ours"
