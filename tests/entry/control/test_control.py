"""The control socket: its language, its manners, and that there is never a second writer."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncewire.entry.control import client, values
from oncewire.entry.control import client as server_end
from oncewire.entry.control import language as control
from oncewire.entry.control.client import ControlServer, OfflineStore, Remote
from oncewire.entry.control.language import AnswerRoom
from oncewire.entry.control.verbs import TABLE, Verbs
from oncewire.entry.party import store
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running import open_party
from oncewire.errors import (
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
    StoreFull,
    StoreProblem,
    TransportProblem,
    UnknownMessage,
    ValueNotRecognized,
)
from oncewire.handler.actions import Submission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.protocol.states import Outcome
from tests.entry.served import Served

ORDER = Submission(
    "acme-globex",
    Service("urn:test:orders", "urn:test:type"),
    "New",
    (Payload.of("a@test", "text/plain", b"a\nb\0"), Payload.of("b@test", "text/plain", b"")),
    conversation_id="talk",
    message_id="order-1",
    time_to_live=3_600_000_000,
)


def settings_of(folder: Path, name: str = "acme") -> Settings:
    return load(folder / name, environ={}).settings


def talk(path: Path, line: bytes) -> dict[str, Any]:
    """One line to the socket, and the line that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").readline()
    found = json.loads(answer)
    assert isinstance(found, dict)
    return found


def test_a_submission_survives_the_socket() -> None:
    verb = TABLE["send"]
    frame = values.request_frame(verb, verb.bind({"submission": ORDER}))
    assert frame.parts == (b"a\nb\0", b"")
    again = control.ControlFrame(json.loads(json.dumps(frame.values)), frame.parts)
    assert values.read_request(verb, again).arguments == {"submission": ORDER}


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("bad", remedy="good"),
        NotAllowed("no", remedy="later"),
        UnknownMessage("who"),
        StoreFull("full", remedy="wait"),
        ValueNotRecognized("what", location="//Service", remedy="use another"),
    ],
)
def test_an_error_arrives_as_it_was_raised(error: OncewireError) -> None:
    found = control.read_error(control.error_frame(error).values)
    assert type(found) is type(error)
    assert (found.problem, found.remedy) == (error.problem, error.remedy)


async def test_the_verbs_of_a_running_handler(served: Served) -> None:
    remote = await Remote.connect(store.socket_path(settings_of(served.folder)))
    there = await Remote.connect(store.socket_path(settings_of(served.folder, "globex")))
    assert remote is not None
    assert there is not None
    accepted = await remote.send(ORDER)
    assert accepted.message_id == "order-1"
    assert await remote.wait("order-1", 60) is Outcome.DELIVERED
    (taken,) = await there.take(5)
    assert [payload.data for payload in taken.payloads] == [b"a\nb\0", b""]
    assert taken.service == "urn:test:type:urn:test:orders"
    assert await there.confirm(taken.sender, taken.message_id) is True
    assert await there.confirm(taken.sender, taken.message_id) is False
    status = await there.status()
    assert (status.party, status.running, status.counts["in.confirmed"]) == ("globex", True, 1)
    with pytest.raises(UnknownMessage):
        await remote.wait("nobody-sent-this", 1)
    with pytest.raises(NotAllowed):
        await remote.abandon("order-1")
    for refused in (remote.pause("no channel", "why"), remote.restart("no channel")):
        with pytest.raises(NotHere, match="`oncewire status` lists them"):
            await refused
    with pytest.raises(UnknownMessage):
        await remote.confirm_notice("no notice")
    assert await remote.notices(5) == []
    await remote.hold("order-1", True)
    await there.hold("order-1", False)
    with pytest.raises(NotAllowed, match="not in doubt"):
        await remote.accept_clock()
    with pytest.raises(UnknownMessage):
        await remote.hold("nobody-sent-this", True)
    await remote.close()
    await there.close()


@pytest.mark.long
async def test_many_at_once_share_the_handler(served: Served) -> None:
    remote = await Remote.connect(store.socket_path(settings_of(served.folder)))
    assert remote is not None
    plain = [Submission("acme-globex", Service("urn:test"), "New") for _ in range(150)]
    accepted = await asyncio.gather(*(remote.send(one) for one in plain))
    await remote.close()
    assert len({one.message_id for one in accepted}) == 150


NONSENSE = (
    b"not json\n",
    b"[]\n",
    b'{"verb": "status"}\n',
    b'{"oncewire": 99, "verb": "status"}\n',
    b'{"oncewire": 3, "verb": "dance"}\n',
    b'{"oncewire": 3, "verb": "send"}\n',
    b'{"oncewire": 3, "verb": "send", "arguments": {"submission": {"payloads": 7}}}\n',
    b'{"oncewire": 3, "verb": "confirm", "arguments": {"sender": 5}}\n',
    b'{"oncewire": 3, "verb": "resume", "arguments": {}}\n',
    b'{"oncewire": 3, "verb": "status", "bytes": [-1]}\n',
    b'{"oncewire": 3, "verb": "status", "bytes": [999999999999]}\n',
    b'{"oncewire": 3, "verb": "status"',
    b'{"oncewire": 3, "verb": "status", "arguments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    b'{"oncewire": 3, "verb": "take", "arguments": {"limit": NaN}}\n',
    b'{"oncewire": 3, "verb": "\\ud800"}\n',
    b'{"oncewire": 3, "verb": "hold", "arguments": {"\\ud800": 1}}\n',
)


def test_nonsense_is_answered_and_harms_nobody(served: Served) -> None:
    path = store.socket_path(settings_of(served.folder))
    for line in NONSENSE:
        answer = talk(path, line)
        assert answer["ok"] is False, line[:80]
        assert answer["error"]["problem"], line[:80]
        good = talk(path, b'{"oncewire": 3, "verb": "status"}\n')
        assert good["result"]["party"] == "acme", line[:80]


def test_a_command_that_leaves_early_harms_nobody(served: Served) -> None:
    path = store.socket_path(settings_of(served.folder))
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b'{"oncewire": 3, "verb": "send", "bytes": [1000]}\nabc')
    assert talk(path, b'{"oncewire": 3, "verb": "status"}\n')["ok"] is True


async def test_a_deep_folder_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("down" * 20)
    folder.mkdir(parents=True)
    path = folder / "oncewire.sock"
    assert len(str(path)) > 150

    class Nobody:
        """Answers nothing: only the way to it is tried."""

    server = ControlServer(path, Nobody())  # type: ignore[arg-type]
    await server.start()
    assert path.stat().st_mode & 0o777 == 0o600
    remote = await Remote.connect(path)
    assert remote is not None
    with pytest.raises(OncewireError, match="fault in the handler"):
        await remote.status()
    await remote.close()
    await server.stop()
    assert not path.exists()
    assert await Remote.connect(path) is None


async def test_a_handler_that_stops_lets_its_guests_go(served: Served) -> None:
    path = store.socket_path(settings_of(served.folder))

    served.stop("globex")
    remote = await Remote.connect(path)
    assert remote is not None
    far = Submission("acme-globex", Service("urn:test"), "New", message_id="far")
    await remote.send(far)
    waiting = asyncio.create_task(remote.wait("far", 600))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(served.stop, "acme")
    with pytest.raises(TransportProblem, match="stopped before it answered"):
        await waiting
    await remote.close()


class Waiting(Verbs):
    """Answers when it is told to, and knows when nobody waits any more."""

    def __init__(self) -> None:
        self.asked, self.go_on, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def perform(self, method: Any, given: Any) -> Any:
        self.asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        return None


_WAIT = b'{"oncewire": 3, "verb": "wait", "arguments": {"message_id": "m", "timeout": 600}}\n'


async def test_nobody_is_waited_for_who_hung_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_end, "LOOK_EVERY", 0.01)
    verbs = Waiting()
    server = ControlServer(tmp_path / "s.sock", verbs)
    await server.start()
    _, writer = await asyncio.open_unix_connection(tmp_path / "s.sock")
    writer.write(_WAIT)
    await verbs.asked.wait()
    writer.close()
    await asyncio.wait_for(verbs.left.wait(), 30)
    while server._guests:
        await asyncio.sleep(0)
    await server.stop()


async def test_who_has_nothing_more_to_ask_still_gets_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a shell's pipe, whose end is told before the answer is read."""
    monkeypatch.setattr(server_end, "LOOK_EVERY", 0.01)
    looks: list[bool] = []
    hung_up = server_end._hung_up

    def look(writer: asyncio.StreamWriter) -> bool:
        looks.append(hung_up(writer))
        return looks[-1]

    monkeypatch.setattr(server_end, "_hung_up", look)
    verbs = Waiting()
    server = ControlServer(tmp_path / "s.sock", verbs)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s.sock")
    writer.write(_WAIT)
    writer.write_eof()
    while len(looks) < 3:
        await asyncio.sleep(0.01)
    verbs.go_on.set()
    line = await reader.readline()
    writer.close()
    await server.stop()
    assert json.loads(line)["ok"] is True
    assert not any(looks)


@contextmanager
def crowded(path: Path) -> Iterator[socket.socket]:
    """A listener whose queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(1)
        while True:
            guest = stack.enter_context(socket.socket(socket.AF_UNIX))
            guest.setblocking(False)
            try:
                guest.connect(str(path))
            except BlockingIOError:
                break
        yield listener


def test_a_crowd_at_the_socket_is_no_handler_that_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BUSY_SECONDS", 0.05)
    with crowded(tmp_path / "s.sock"), pytest.raises(TransportProblem, match="is busy") as refused:
        asyncio.run(Remote.connect(tmp_path / "s.sock"))
    assert "try again" in refused.value.remedy


async def test_who_comes_in_a_crowd_waits_its_turn(tmp_path: Path) -> None:
    with crowded(tmp_path / "s.sock") as listener:
        coming = asyncio.create_task(Remote.connect(tmp_path / "s.sock"))
        await asyncio.sleep(0.05)
        assert not coming.done()
        listener.accept()[0].close()
        remote = await asyncio.wait_for(coming, 60)
        assert remote is not None
        await remote.close()


async def test_what_is_too_much_for_one_answer_is_taken_in_several(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is leased that the answer cannot carry; sizes as they are would take minutes."""
    monkeypatch.setattr(control, "BODY_MAX", 1000)
    monkeypatch.setattr(AnswerRoom, "SIZE", 1000)
    monkeypatch.setattr(control, "LINE_MAX", 2000)
    monkeypatch.setattr(AnswerRoom, "LINE", 1900)
    acme = await Remote.connect(store.socket_path(settings_of(served.folder)))
    globex = await Remote.connect(store.socket_path(settings_of(served.folder, "globex")))
    assert acme is not None
    assert globex is not None
    for number, size in enumerate((400, 400, 400, 0, 0, 0, 0, 0), 1):
        payload = Payload.of("a@test", "text/plain", bytes(size))
        await acme.send(replace(ORDER, message_id=f"m-{number}", payloads=(payload,)))
        assert await acme.wait(f"m-{number}", 60) is Outcome.DELIVERED
    found = []
    while messages := await globex.take(100):
        found.append([message.message_id for message in messages])
        assert not any(message.redelivered for message in messages)
    large = Payload.of("a@test", "text/plain", bytes(1001))
    with pytest.raises(InvalidValue, match="too much for the control socket"):
        await acme.send(replace(ORDER, message_id="large", payloads=(large,)))
    assert (await acme.status()).running
    await acme.close()
    await globex.close()
    assert [name for names in found for name in names] == [f"m-{number}" for number in range(1, 9)]
    assert found[0] == ["m-1", "m-2"]
    assert len(found) > 2


# --- one writer --------------------------------------------------------------------------------


async def test_the_running_handler_is_preferred(served: Served) -> None:
    async with open_party.reach(settings_of(served.folder)) as verbs:
        assert isinstance(verbs, Remote)


async def test_commands_without_a_handler_take_turns(pair: Path) -> None:
    settings = settings_of(pair)

    async def one(number: int) -> str:
        async with open_party.reach(settings) as verbs:
            assert isinstance(verbs, OfflineStore)
            await asyncio.sleep(0.05)
            plain = Submission("acme-globex", Service("urn:test"), "New", message_id=f"m-{number}")
            return (await verbs.send(plain)).message_id

    assert await asyncio.gather(*(one(number) for number in range(5))) == [
        f"m-{number}" for number in range(5)
    ]


async def test_who_waits_too_long_is_told_who_has_the_store(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(pair)
    monkeypatch.setattr(client, "PATIENCE", 0.2)

    async with open_party.reach(settings):
        with pytest.raises(StoreProblem, match="in use"):
            async with open_party.reach(settings):
                pass
    assert not store.is_owned(settings.path(settings.store.path))
