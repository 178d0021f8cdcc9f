"""What a partner says on a connection of ours costs the loop no more than what it sends."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from oncewire.errors import MimeProblem
from oncewire.handler.receiving import inbound as module
from oncewire.handler.receiving.inbound import READ_AT_ONCE, heard, no_message
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.spool_reading import ReadingRoom
from oncewire.protocol.notes import NO_MESSAGE
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Reply
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Parcel, Received
from oncewire.wire.templates.envelope import EnvelopeTemplates
from tests.handler.network import Network
from tests.handler.running import SYNC, Wire, context_of, journal, order


class Talkative(Wire):
    """A partner that says much wherever it is asked anything."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        reply = Reply(200, 'multipart/related; boundary="b"', body=self._body)
        return AttemptOutcome(OutcomeKind.SENT, reply=reply)


def test_what_is_no_message_is_told_with_its_status_and_address() -> None:
    fault = MimeProblem("the header is not well-formed XML")
    page, at = Parcel("text/html; charset=utf-8", b"<p>"), "https://b.example/nope"
    told = no_message(fault, page, at, "HTTP 404 Not Found")
    assert told.startswith(f"HTTP 404 Not Found from {at}, and {NO_MESSAGE} but text/html;")
    assert no_message(fault, page, at) == f"{NO_MESSAGE}: {fault.problem}"
    odd = no_message(fault, Parcel("text/xml", b"<p>"), at, "HTTP 500")
    assert fault.problem in odd


@pytest.mark.parametrize("size", [1_000, READ_AT_ONCE + 1])
@pytest.mark.parametrize("in_time", [True, False])
async def test_a_large_reply_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, in_time: bool
) -> None:
    readers: list[str] = []

    def read_all(
        parcel: Parcel, limits: Limits, *, templates: EnvelopeTemplates
    ) -> tuple[Received, ...]:
        readers.append(threading.current_thread().name)
        if not in_time and size > READ_AT_ONCE:
            gate.wait(10)
        return codec.read_all(parcel, limits, templates=templates)

    gate = threading.Event()
    monkeypatch.setattr(module, "read_all", read_all)
    node = context_of("alpha", tmp_path / "alpha.db")
    if not in_time:
        node.state.reading_room = ReadingRoom(deadline=0.05)
    async with Handler(node, {"http": Talkative(b"x" * size)}) as alpha:
        sent = await alpha.send(order(1))
        failures: list[str] = []
        async with asyncio.timeout(30):
            while not failures:
                await asyncio.sleep(0.01)
                found = [row for row in journal(alpha) if row.message_id == sent.message_id]
                failures = [row.detail or "" for row in found if row.kind == "send_failed"]
        gate.set()
    failed = failures[0]
    assert "the reply is no message" in failed
    assert ("too long" in failed) is (not in_time and size > READ_AT_ONCE)
    beside = [name.startswith("oncewire reading") for name in readers]
    assert beside == [size > READ_AT_ONCE]


def test_a_reply_names_what_is_to_be_stored_of_it() -> None:
    pair = Network.pair("ebms2", SYNC)
    message = pair.order()
    acknowledgment = pair.bytes_of(pair.arrive(message))
    for parcel, names in (
        (message, ["order-1@alpha"]),
        (acknowledgment, []),
        (Parcel("text/xml", b"<"), []),
    ):
        assert heard(parcel, DEFAULT_LIMITS, EnvelopeTemplates()).names == names
    pair.close()
