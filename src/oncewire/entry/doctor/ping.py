"""Ping: ask a partner's handler whether it is there, without touching our store.

A Ping of ebMS 2.0 (section 8) needs no handler of ours to run: the answer is asked for on the
same connection. What comes back tells more than whether the port is open: a partner that does
not know the agreement says so, and its clock can be compared with ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.agreements import Agreements
from oncewire.entry.party.agreements import Kept
from oncewire.entry.running.assemble import keys_of, party_name
from oncewire.entry.running.other_transports import other_transports
from oncewire.entry.running.transports import http_transport
from oncewire.errors import OncewireError
from oncewire.handler.answering.answer import envelope_for, signal_route
from oncewire.handler.node import Node
from oncewire.handler.route import route_under
from oncewire.handler.sealing.seal import seal
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.header import Header
from oncewire.message.instant import Duration
from oncewire.store.memory.store import MemoryStore
from oncewire.transport.contract import AttemptOutcome, Cargo, Delivery, OutcomeKind, Reply
from oncewire.wire import answers, codec
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.transport.http import HttpTransport


class Reached(StrEnum):
    """What a Ping has shown."""

    ANSWERED = "answered"  # the partner's handler works and knows us
    TAKEN = "taken"  # it took the Ping; its answer comes on another connection
    REFUSED = "refused"  # it is there, and does not want us
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Echo:
    """What came of one Ping."""

    partner: str
    cpa_id: str
    address: str
    reached: Reached
    finding: str
    milliseconds: int | None = None
    # The partner's clock minus ours, as far as one answer can tell.
    skew: Duration | None = None

    @property
    def next_step(self) -> str:
        """What to do about it; empty if all is well."""
        if self.reached is Reached.ANSWERED:
            return ""
        if self.reached is Reached.TAKEN:
            return "see that it can reach our endpoint, and that `oncewire serve` runs here"
        for words, step in _NEXT_STEPS:
            if words in self.finding and self.address.startswith("https:"):
                return step
        if self.reached is Reached.REFUSED:
            return "compare the agreements of both sides"
        for scheme, ours in _OUR_SETTINGS:
            if self.address.startswith(scheme):
                return f"check {ours}, and that {self.address} is right"
        return f"check that it runs and that {self.address or 'its address'} is right"


# What is to be done about a connection depends on whose certificate was not taken. A partner that
# does not take ours cuts the line without a word: TLS 1.3 asks for it when we believe to be done.
_ITS_CARD = (
    "ask for its new card, compare the fingerprint, then `oncewire partner add CARD --roll-over`"
)
_OUR_CARD = (
    "if it runs, it does not know our certificate: give it our card (`oncewire partner card`), "
    "which it takes with oncewire partner add CARD --roll-over"
)
_NEXT_STEPS = (
    ("certificate has expired", f"its certificate has run out: {_ITS_CARD}"),
    ("CERTIFICATE_VERIFY_FAILED", f"it shows another certificate than its card: {_ITS_CARD}"),
    ("not the pinned one", f"it shows another certificate than its card: {_ITS_CARD}"),
    ("was revoked", f"we have revoked it: {_ITS_CARD}"),
    ("client certificate is not the agreed one", _OUR_CARD),
    ("ALERT", _OUR_CARD),
    ("ended before the answer", _OUR_CARD),
    ("Connection reset", _OUR_CARD),
)  # fmt: skip

# Between us and the partner stands a server there; how we reach it is said in our settings.
_OUR_SETTINGS = (
    ("mailto:", "smtp.relay, smtp.relay_port, smtp.protection, smtp.user and smtp.password"),
    ("sftp:", "sftp.user, sftp.key and sftp.known_hosts"),
    ("ftp:", "ftp.user and ftp.password"),
    ("ftps:", "ftp.user, ftp.password and ftp.authorities"),
    ("nats:", "broker.url, broker.monitor, broker.user and broker.password"),
)


async def ping(settings: Settings, kept: Iterable[Kept], timeout: float = 10.0) -> list[Echo]:
    """Ping the partner of each agreement, all at once."""
    import asyncio

    chosen = list(kept)
    node = Node(
        party_name(settings),
        # It remembers nothing: a Ping is not a message that must arrive.
        MemoryStore(party_name(settings)),
        Agreements(known.agreement for known in chosen),
        RealWorld(),
        keys=keys_of(settings),
    )
    transport = http_transport(settings, chosen, listen=False)
    await transport.start(_nobody_home)
    try:
        return list(
            await asyncio.gather(*(_ping(node, transport, known, timeout) for known in chosen))
        )
    finally:
        await transport.stop()


async def probe_ways(settings: Settings, kept: Iterable[Kept], timeout: float = 10.0) -> list[Echo]:
    """Whether the ways to partners beside HTTP are open. Nothing is sent on them."""
    ways, found = other_transports(settings, listen=False), []
    for name, transport in ways.items():
        ends = [
            (known, address)
            for known in kept
            if name in known.agreement.sending.terms.transports
            and (address := route_under(known.agreement, known.agreement.sending).address(name))
        ]
        if not ends:
            continue
        try:
            await transport.start(_nobody_home)
        except OncewireError as error:
            outcomes = [AttemptOutcome(OutcomeKind.REFUSED, str(error))] * len(ends)
        else:
            outcomes = [await transport.probe(at, timeout=timeout) for _, at in ends]
        finally:
            await transport.stop()
        for (known, address), outcome in zip(ends, outcomes, strict=True):
            opened = outcome.kind is OutcomeKind.SENT
            reached = Reached.TAKEN if opened else Reached.UNREACHABLE
            said = f"the way over {name} is open" if opened else f"{name}: {outcome.reason}"
            found.append(Echo(known.file.stem, known.agreement.cpa_id, address, reached, said))
    return found


async def _nobody_home(_delivery: Delivery) -> Reply:
    return Reply(503)


async def _ping(node: Node, transport: HttpTransport, kept: Kept, timeout: float) -> Echo:
    agreement, name = kept.agreement, kept.file.stem
    route = signal_route(agreement, MessageKind.PING)
    address = route.address(transport.name) or ""
    if not address:
        others = [way for way in route.terms.transports if route.address(way)]
        if others:
            # Only our handler hears what comes back on those.
            said = f"it is asked over {others[0]}"
            at = route.address(others[0]) or ""
            return Echo(name, agreement.cpa_id, at, Reached.TAKEN, said)
        return Echo(
            name, agreement.cpa_id, "", Reached.UNREACHABLE, "the agreement has no http address"
        )
    try:
        message = _ping_message(node, agreement)
        parcel = seal(node, message, route)
    except OncewireError as error:
        return Echo(name, agreement.cpa_id, address, Reached.UNREACHABLE, str(error))

    async def chunks() -> AsyncIterator[bytes]:
        for part in parcel.body:
            if isinstance(part, bytes):
                yield part

    cargo = Cargo(parcel.content_type, parcel.headers, parcel.size, chunks)
    started, began = node.world.mono(), node.now()
    outcome = await transport.send(cargo, address, timeout=timeout)
    took = node.world.mono() - started
    reached, finding, theirs = _judged(outcome)
    skew = None if theirs is None else theirs - (began + took // 2)
    return Echo(name, agreement.cpa_id, address, reached, finding, took // 1000, skew)


def _ping_message(node: Node, agreement: Agreement) -> Message:
    like = Header(
        from_party=agreement.own.party,
        to_party=agreement.partner.party,
        cpa_id=agreement.cpa_id,
        conversation_id=node.world.new_id(),
        service=None,
        action=None,
        message_id=node.new_message_id(),
        timestamp=node.now(),
    )
    envelope = envelope_for(node, signal_route(agreement, MessageKind.PING))
    about = Message(agreement.form.dialect, MessageKind.NORMAL, like)
    asked = answers.ping_like(about, envelope)
    return replace(asked, header=replace(asked.header, sync_reply_as_agreed=True))


def _judged(outcome: AttemptOutcome) -> tuple[Reached, str, int | None]:
    """What the outcome of the transport means, and the partner's clock if it told it."""
    reply = outcome.reply
    if reply is not None and reply.body:
        try:
            message = codec.read(Parcel(reply.content_type, reply.body, reply.headers)).message
        except OncewireError as error:
            return Reached.REFUSED, f"its answer cannot be read: {error.problem}", None
        stamp = message.header.timestamp
        if message.kind is MessageKind.PONG:
            return Reached.ANSWERED, "it answered", stamp
        if message.error_list is not None:
            first = message.error_list.errors[0]
            return Reached.REFUSED, f"{first.code}: {first.description}", stamp
        return Reached.REFUSED, f"it answered with {message.kind.value}", stamp
    if outcome.kind is OutcomeKind.SENT:
        return Reached.TAKEN, "it took the Ping and answers on another connection", None
    if reply is not None:
        return Reached.REFUSED, outcome.reason or f"HTTP {reply.status}", None
    return Reached.UNREACHABLE, outcome.reason, None
