"""Ping: ask a partner's handler whether it is there, without touching our store.

A Ping of ebMS 2.0 (section 8) needs no handler of ours to run. Where synchronous replies are
agreed its answer comes on the same connection; else it goes to our own endpoint, where a handler
hears it. What comes back tells more than whether the port is open: a partner that does not know the
agreement says so, and its clock can be compared with ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import partial

from msgspec import structs

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.entry.party.agreements import Kept
from oncewire.entry.party.partners import keys_of
from oncewire.entry.party.settings import Settings, party_name
from oncewire.entry.running.transports import http_transport, other_transports
from oncewire.errors import OncewireError
from oncewire.handler.context import HandlerContext
from oncewire.handler.receiving.inbound import no_message
from oncewire.handler.route import envelope_for, route_under
from oncewire.handler.sending.answer import signal_route
from oncewire.handler.sending.seal import seal
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import PROBE_MARK, Header, Message, MessageKind
from oncewire.message.instant import SECOND, Duration
from oncewire.protocol.notes import NO_MESSAGE
from oncewire.store.memory.store import MemoryStore
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OutcomeKind,
    Reply,
    Transport,
)
from oncewire.transport.http.transport import HttpTransport
from oncewire.wire import answers, codec
from oncewire.wire.parcel import Parcel


class Reached(StrEnum):
    """What a Ping has shown."""

    ANSWERED = "answered"  # the partner's handler works and knows us
    TAKEN = "taken"  # it took the Ping; its answer comes on another connection
    UNHEARD = "unheard"  # it took the Ping, and our handler heard no answer
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
        if self.reached in (Reached.TAKEN, Reached.UNHEARD):
            return "see that it can reach our endpoint, and that `oncewire serve` runs here"
        if NO_MESSAGE in self.finding:
            return f"ask its people whether {self.address} is right, and correct the agreement"
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

_AT_ONCE = 8
"""Partners that are asked at the same time: what our own machine does for one of them must not
make it late for another, whose time runs."""


async def ping(settings: Settings, kept: Iterable[Kept], timeout: float = 10.0) -> list[Echo]:
    """Ping the partner of each agreement, a few at a time."""

    chosen = list(kept)
    node = HandlerContext(
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
        return await _few_at_a_time(
            [partial(_ping, node, transport, known, timeout) for known in chosen]
        )
    finally:
        await transport.stop()


async def hear_pongs(settings: Settings, echoes: Iterable[Echo], timeout: float) -> list[Echo]:
    """The echoes, with what came of Pings whose answers go to our own endpoint: the handler that
    runs there asks again, or one that runs for as long."""
    from oncewire.entry.running.open_party import reach_running

    found = list(echoes)
    open_ones = [number for number, echo in enumerate(found) if echo.reached is Reached.TAKEN]
    if not open_ones:
        return found
    try:
        async with reach_running(settings) as verbs:
            heard = await _few_at_a_time(
                [partial(_pong, verbs.ping, found[number], timeout) for number in open_ones]
            )
    except OncewireError as error:
        why = f"its Pong was not heard: {error.problem}"
        heard = [_unheard(found[number], why) for number in open_ones]
    for number, echo in zip(open_ones, heard, strict=True):
        found[number] = echo
    return found


async def _pong(ask: Callable[[str, float], Awaitable[bool]], echo: Echo, timeout: float) -> Echo:
    try:
        if await ask(echo.cpa_id, timeout):
            said = "it answered, on a connection of its own"
            return replace(echo, reached=Reached.ANSWERED, finding=said)
    except OncewireError as error:
        return _unheard(echo, f"its Pong was not heard: {error.problem}")
    return _unheard(echo, f"no Pong came within {timeout:g} s")


def _unheard(echo: Echo, why: str) -> Echo:
    return replace(echo, reached=Reached.UNHEARD, finding=f"it took the Ping; {why}")


async def _few_at_a_time(asking: Sequence[Callable[[], Awaitable[Echo]]]) -> list[Echo]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(ask: Callable[[], Awaitable[Echo]]) -> Echo:
        async with places:
            return await ask()

    return list(await asyncio.gather(*(in_turn(ask) for ask in asking)))


async def _patiently(
    attempt: Callable[[float], Awaitable[AttemptOutcome]], timeout: float
) -> AttemptOutcome:
    """What an attempt came to, or where it did not arrive the next one, which has twice as long:
    the time is taken by a machine that may itself be late."""
    outcome = await attempt(timeout)
    if outcome.kind is not OutcomeKind.SENT and outcome.reply is None:
        outcome = await attempt(2 * timeout)
    return outcome


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
            outcomes = [await _probe(transport, address, timeout) for _, address in ends]
        finally:
            await transport.stop()
        for (known, address), outcome in zip(ends, outcomes, strict=True):
            opened = outcome.kind is OutcomeKind.SENT
            reached = Reached.TAKEN if opened else Reached.UNREACHABLE
            said = f"the way over {name} is open" if opened else f"{name}: {outcome.reason}"
            found.append(Echo(known.file.stem, known.agreement.cpa_id, address, reached, said))
    return found


async def _probe(transport: Transport, address: str, timeout: float) -> AttemptOutcome:
    return await _patiently(lambda wait: transport.probe(address, timeout=wait), timeout)


async def _nobody_home(_delivery: Delivery) -> Reply:
    return Reply(503)


async def _ping(node: HandlerContext, transport: HttpTransport, kept: Kept, timeout: float) -> Echo:
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
    took = began = 0

    async def attempt(wait: float) -> AttemptOutcome:
        nonlocal took, began
        started, began = node.world.mono(), node.now()
        outcome = await transport.send(cargo, address, timeout=wait)
        took = node.world.mono() - started
        return outcome

    reached, finding, theirs = _judged(await _patiently(attempt, timeout), address)
    skew = None if theirs is None else theirs - (began + took // 2)
    return Echo(name, agreement.cpa_id, address, reached, finding, took // 1000, skew)


def _ping_message(node: HandlerContext, agreement: Agreement) -> Message:
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
    route = signal_route(agreement, MessageKind.PING)
    about = Message(agreement.form.dialect, MessageKind.NORMAL, like)
    asked = answers.ping_like(about, envelope_for(node, route))
    agreed, named = route.terms.synchronous, f"{PROBE_MARK}{asked.header.message_id}"
    header = structs.replace(asked.header, message_id=named, sync_reply_as_agreed=agreed)
    return structs.replace(asked, header=header)


def _judged(outcome: AttemptOutcome, address: str) -> tuple[Reached, str, int | None]:
    """What the outcome of the transport means, and the partner's clock if it told it."""
    reply = outcome.reply
    if reply is not None and reply.body:
        parcel = Parcel(reply.content_type, reply.body, reply.headers)
        try:
            message = codec.read(parcel).message
        except OncewireError as error:
            return Reached.REFUSED, no_message(error, parcel, address, outcome.reason), None
        stamp = message.header.timestamp
        if message.kind is MessageKind.PONG:
            return Reached.ANSWERED, "it answered", stamp
        if message.error_list is not None:
            first = message.error_list.errors[0]
            return Reached.REFUSED, f"{first.code}: {first.description}", stamp
        return Reached.REFUSED, f"it answered with {message.kind.value}", stamp
    if outcome.kind is OutcomeKind.SENT:
        said = "it took the Ping and answers on another connection"
        return Reached.TAKEN, said, None if reply is None else _date_of(reply)
    if reply is not None:
        return Reached.REFUSED, outcome.reason or f"HTTP {reply.status}", None
    return Reached.UNREACHABLE, outcome.reason, None


def _date_of(reply: Reply) -> int | None:
    """When an answer was given by the clock over there, to the second."""
    for name, value in reply.headers:
        if name.lower() == "date":
            try:
                return int(parsedate_to_datetime(value).timestamp()) * SECOND
            except (ValueError, TypeError, OverflowError):
                return None
    return None
