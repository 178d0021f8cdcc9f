"""Connections: the links between nodes, and the door of each machine to them.

HTTP carries a reply on the connection; mail is accepted by a relay and arrives later, or does not.
"""

from __future__ import annotations

import binascii
import contextlib
import heapq
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from oncewire.handler.actions import Post, PostAnswer, PostOn, Source
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.door import RETRY_AFTER, Connection, Connections
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.transmit import Transmission
from oncewire.lab.simulation.plan import (
    Cut,
    Ending,
    Event,
    Harm,
    Ledger,
    Mishap,
    Mood,
    Plan,
    Setting,
    Whim,
)
from oncewire.message.instant import MILLISECOND, SECOND, Duration, Instant
from oncewire.protocol.notes import Kind
from oncewire.store.records import StoredParcel
from oncewire.transport.contract import Reply
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.handler.runtime.engine import Engine
    from oncewire.journal.row import Row

# Clock: virtual time that jumps from event to event, and what each node takes for the time.

START: Instant = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z; any instant would do, a fixed one replays."""


class Clock:
    """Virtual time and the events still to come, in order of time and of scheduling."""

    def __init__(self) -> None:
        self.now: Instant = START
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._scheduled = 0

    def after(self, delay: Duration, event: Callable[[], None]) -> None:
        """Let the event happen that much later."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + max(delay, 0), self._scheduled, event))

    def at(self, instant: Instant, event: Callable[[], None]) -> None:
        """Let the event happen at that instant, or now if it has passed."""
        self.after(instant - self.now, event)

    def step(self) -> bool:
        """Go to the next event and let it happen; False when there is none."""
        if not self._queue:
            return False
        self.now, _, event = heapq.heappop(self._queue)
        event()
        return True


class NodeWorld:
    """The `World` of one node's handler: its own boot, its own ids, and a clock that may be wrong.

    On a `steady` machine monotonic time goes on while the process starts again, as on Linux.
    """

    def __init__(self, clock: Clock, name: str, *, steady: bool) -> None:
        self._clock, self._name, self._steady = clock, name, steady
        self._booted = clock.now
        self._ids = 0
        self.offset: Duration = 0

    def boot(self) -> None:
        """A new process begins; ids of the one before are not used again."""
        if not self._steady:
            self._booted = self._clock.now

    def now(self) -> Instant:
        """What this node takes for UTC."""
        return self._clock.now + self.offset

    def mono(self) -> Duration:
        """Monotonic time."""
        return self._clock.now - self._booted

    def machine(self) -> str:
        """Which boot of which machine the monotonic time belongs to; empty where none is known."""
        return f"machine-of-{self._name}" if self._steady else ""

    def new_id(self) -> str:
        """A fresh id, the same in every replay."""
        self._ids += 1
        return f"{self._name}-{self._ids}"


LATENCY: Duration = 20 * MILLISECOND
HTTP = "http"

Arrive = Callable[[bytes], None]
Turned = Callable[[int], None]
"""Told after how many seconds to come back, instead of arriving."""


class Links:
    """What happens to bytes between two nodes, as planned: each direction of each link counts its
    transfers, and a mishap hits the one with its number."""

    def __init__(self, clock: Clock, seed: int, events: Iterable[Event]) -> None:
        self.clock, self._seed = clock, seed
        self._mishaps: dict[tuple[str, str, int], Mishap] = {}
        self._cuts: list[Cut] = []
        for event in events:
            if isinstance(event, Mishap):
                self._mishaps[event.sender, event.receiver, event.nth] = event
            elif isinstance(event, Cut):
                self._cuts.append(event)
        self._carried: Counter[tuple[str, str]] = Counter()
        self.happened: Counter[str] = Counter()
        self.healed = False

    def refuses(self, one: str, other: str, transport: str) -> bool:
        """Whether no connection of that kind can be made between two nodes now."""
        return self._is_cut(one, other, transport, silent=False)

    def is_open(self, one: str, other: str, transport: str) -> bool:
        """Whether anything would pass between two nodes now."""
        return not any(self._cuts_now(one, other, transport))

    def _cuts_now(self, one: str, other: str, transport: str) -> Iterator[Cut]:
        now: Instant = self.clock.now - START
        for cut in self._cuts:
            if (
                {cut.one, cut.other} == {one, other}
                and cut.transport in ("", transport)
                and cut.at <= now < cut.at + cut.lasts
                and not self.healed
            ):
                yield cut

    def _is_cut(self, one: str, other: str, transport: str, *, silent: bool) -> bool:
        for cut in self._cuts_now(one, other, transport):
            if cut.silent is silent:
                self.happened["silent cut" if silent else "cut"] += 1
                if cut.transport:
                    self.happened["transport failed"] += 1
                return True
        return False

    def carry(
        self,
        sender: str,
        receiver: str,
        body: bytes,
        arrive: Arrive,
        turned: Turned | None = None,
        *,
        transport: str = HTTP,
    ) -> None:
        """Let the bytes arrive later: whole or damaged, once, twice or never."""
        self._carried[sender, receiver] += 1
        nth = self._carried[sender, receiver]
        mishap = None if self.healed else self._mishaps.get((sender, receiver, nth))
        if self._is_cut(sender, receiver, transport, silent=True):
            return
        # Up to once more the usual time, and the same whatever else is in the plan.
        delay = LATENCY + (zlib.crc32(f"{self._seed} {sender} {receiver} {nth}".encode()) % LATENCY)
        if mishap is None or (mishap.harm is Harm.BUSY and turned is None):
            self.clock.after(delay, lambda: arrive(body))
            return
        self.happened[mishap.harm.value] += 1
        if mishap.harm is Harm.LOSE:
            return
        if mishap.harm is Harm.BUSY and turned is not None:
            self.clock.after(delay, lambda: turned(mishap.by))
            return
        if mishap.harm is Harm.DAMAGE and body:
            place = mishap.by % len(body)
            flipped = body[place] ^ (1 << mishap.by % 8)
            body = body[:place] + bytes((flipped,)) + body[place + 1 :]
        if mishap.harm is Harm.DELAY:
            delay += mishap.by
        self.clock.after(delay, lambda: arrive(body))
        if mishap.harm is Harm.REPEAT:
            self.clock.after(delay + mishap.by, lambda: arrive(body))


ANSWER_TIMEOUT: Duration = 30 * SECOND
_BASE64 = re.compile(rb"^(?:[A-Za-z0-9+/]{1,76}={0,2}\r\n)+", re.MULTILINE)

Respond = Callable[[Answer], None]
Over = Callable[[Reply | None, str, bool], None]
"""What came back; or why nothing did, and whether it certainly did not get across."""


class Nodes(Protocol):
    """The other machines of a world, and its plan."""

    plan: Plan

    def machine(self, name: str) -> Node:
        """The node of that name."""


class Node(Protocol):
    """One machine, as its door and its application know it."""

    name: str
    up: bool
    clock: Clock
    links: Links
    ledger: Ledger
    setting: Setting
    latest: list[Row]

    @property
    def around(self) -> Nodes:
        """The world that it is in."""

    @property
    def engine(self) -> Engine:
        """The process that runs now."""

    @property
    def door(self) -> Door:
        """Where it is reached."""

    def turn(
        self, step: str, verb: Callable[[], object], expected: tuple[type[Exception], ...] = ()
    ) -> Ending:
        """Run a verb and make it durable."""

    def turn_of(self, engine: Engine, step: str, verb: Callable[[], object]) -> Ending:
        """A turn of the process that began something."""

    def mood_of(self, whim: Whim | None) -> Mood | None:
        """An application's mood."""


class Door:
    """What leaves and enters one machine."""

    def __init__(self, machine: Node) -> None:
        self._machine = machine
        # Connections that wait for the response to their request.
        self.replying = Connections()
        # Connections that wait for what the next hop says.
        self.relaying = Connections()

    def close(self) -> None:
        """Close all connections, because the process is gone."""
        for _, message_id in self.replying.requests:
            self._alone(message_id)
        self.replying, self.relaying = Connections(), Connections()

    # --- what leaves ---

    def post(self, post: Post) -> None:
        """An attempt: the request travels, then the response, each with its own luck."""
        machine, engine = self._machine, self._machine.engine

        def over(reply: Reply | None, reason: str, certain: bool) -> None:
            retry_after = None
            sent = reply is not None and 200 <= reply.status < 300
            if reply is not None:
                reason, retry_after = f"HTTP {reply.status}", reply.retry_after
            ended = Transmission(
                post.message_id,
                post.attempt,
                sent,
                certain,
                reason,
                retry_after,
                transport=post.transport,
            )
            parcel = _parcel_of(reply)
            machine.turn_of(engine, "outcome", lambda: engine.transmission_over(ended, parcel))

        self._carry(engine, post.transport, post.address, post.parcel, post.timeout, over)

    def post_on(self, post: PostOn) -> None:
        """A message of others, whose own connection waits here for what comes back."""
        machine, engine = self._machine, self._machine.engine

        def over(reply: Reply | None, reason: str, certain: bool) -> None:
            sent = reply is not None and 200 <= reply.status < 300
            refused = reply is not None and 300 <= reply.status < 500
            after = None if reply is None else reply.retry_after
            ended = Transmission(post.message_id, 0, sent, certain or refused, reason, after)
            parcel = _parcel_of(reply)
            ending = machine.turn_of(
                engine, "onward over", lambda: engine.onward_over(post, ended, parcel)
            )
            if ending in (Ending.FULL, Ending.RAISED):
                self.relaying.wake_all()

        self._carry(engine, post.transport, post.address, post.parcel, post.timeout, over)

    def post_answer(self, post: PostAnswer) -> None:
        """Send a signal on a connection of its own."""
        machine, engine = self._machine, self._machine.engine

        def over(reply: Reply | None, reason: str, certain: bool) -> None:  # noqa: ARG001
            sent = reply is not None and 200 <= reply.status < 300
            parcel = _parcel_of(reply)
            machine.turn_of(
                engine, "answer left", lambda: engine.answer_left(post, sent=sent, reply=parcel)
            )

        self._carry(engine, post.transport, post.address, post.parcel, ANSWER_TIMEOUT, over)

    def _carry(
        self,
        engine: Engine,
        transport: str,
        address: str,
        stored: StoredParcel,
        timeout: Duration,
        over: Over,
    ) -> None:
        machine, pending = self._machine, [True]
        links, clock = machine.links, machine.clock

        def end(reply: Reply | None, reason: str = "", certain: bool = False) -> None:
            # The first of the reply and the timeout decides.
            if pending[0]:
                pending[0] = False
                over(reply, reason, certain)

        name = address.split("/")[2]
        target = machine.around.machine(name)
        if links.refuses(machine.name, name, transport) or not target.up:
            clock.after(MILLISECOND, lambda: end(None, "connection refused", True))
            return
        parcel = whole_parcel(engine.context, stored)
        note_report(machine.ledger, machine.name, name, parcel.body)
        if transport != HTTP:
            source = Source(transport, can_answer=False, address=f"{transport}://{machine.name}")
            links.carry(
                machine.name,
                name,
                parcel.body,
                lambda data: target.door.arrive(_with_body(parcel, data), source, lambda _: None),
                transport=transport,
            )
            clock.after(LATENCY, lambda: end(Reply(202)))
            return
        clock.after(timeout, lambda: end(None, "no response in time"))
        source = Source(HTTP, can_answer=True, address=f"http://{machine.name}")

        def respond(answer: Answer) -> None:
            reply = target.door.reply_of(answer)
            note_report(machine.ledger, name, machine.name, reply.body)
            links.carry(name, machine.name, reply.body, lambda data: end(replace(reply, body=data)))

        links.carry(
            machine.name,
            name,
            parcel.body,
            lambda data: target.door.arrive(_with_body(parcel, data), source, respond),
            lambda seconds: respond(Answer(503, retry_after=seconds)),
        )

    def reply_of(self, answer: Answer) -> Reply:
        """An answer as HTTP has it."""
        if answer.parcel is None:
            return Reply(answer.status, retry_after=answer.retry_after)
        parcel = whole_parcel(self._machine.engine.context, answer.parcel)
        return Reply(answer.status, parcel.content_type, parcel.headers, parcel.body)

    # --- what enters ---

    def arrive(self, parcel: Parcel, source: Source, respond: Respond) -> None:
        """Bytes reach this machine; the answer leaves only after the commit."""
        machine, engine = self._machine, self._machine.engine
        answers: list[Answer] = []
        opened: list[Connection] = []

        def receive() -> None:
            answer = engine.receive(parcel, source)
            answers.append(answer)
            if answer.relayed is not None:
                opened.append(self._keep_open(engine, answer.relayed, respond))

        ending = machine.turn("receive", receive)
        if ending is Ending.DOWN or (ending is Ending.DONE and opened):
            return
        for connection in opened:
            self.relaying.close(connection)
        if ending is Ending.FULL:
            respond(Answer(503, retry_after=RETRY_AFTER))
        elif ending is Ending.RAISED:
            respond(Answer(500))
        elif answers[0].awaited is not None:
            self._reply_in_time(engine, answers[0].awaited, respond)
        else:
            for row in machine.latest:
                if row.kind == Kind.DUPLICATE.value and row.message_id is not None:
                    self._note_reply(row.message_id, answers[0])
            respond(answers[0])

    def _keep_open(self, engine: Engine, awaited: Awaited, respond: Respond) -> Connection:
        """Wait for what the next hop says, which leaves after the turn that is on."""
        machine, relaying = self._machine, self.relaying

        def speak() -> None:
            answers: list[Answer] = []
            if machine.engine is not engine or not relaying.close(connection):
                return
            ending = machine.turn(
                "relay", lambda: answers.append(engine.relay(awaited, connection.said))
            )
            if ending is Ending.DONE:
                respond(answers[0])
            elif ending is not Ending.DOWN:
                respond(Answer(503, retry_after=RETRY_AFTER))

        # Everything of one turn is given before the first of it is looked at.
        connection = relaying.open(awaited, lambda: machine.clock.after(0, speak))
        machine.clock.after(awaited.patience, speak)
        return connection

    def _reply_in_time(self, engine: Engine, awaited: Awaited, respond: Respond) -> None:
        """Wait until the application answered a request, or time is up."""
        machine, open_ = self._machine, [True]

        def finish(answer: Answer) -> None:
            open_[0] = False
            self.replying.close(connection)
            self._note_reply(awaited.message_id, answer)
            respond(answer)

        def look() -> None:
            found: list[Answer | None] = []
            if not open_[0] or machine.engine is not engine:
                return
            ending = machine.turn("look", lambda: found.append(engine.reply_to(awaited)))
            if ending is Ending.DONE and found[0] is not None:
                finish(found[0])

        def overdue() -> None:
            found: list[Answer] = []
            if not open_[0] or machine.engine is not engine:
                return
            ending = machine.turn("overdue", lambda: found.append(engine.overdue(awaited)))
            self._alone(awaited.message_id)
            # An answer that could not be committed does not leave.
            done = ending is Ending.DONE
            finish(found[0] if done else Answer(503, retry_after=RETRY_AFTER))

        connection = self.replying.open(awaited, look)
        look()
        if open_[0]:
            machine.clock.after(awaited.patience, overdue)

    def _note_reply(self, message_id: str, answer: Answer) -> None:
        """Remember what a copy of a request got."""
        if answer.parcel is None:
            return
        machine = self._machine
        body = _opened(whole_parcel(machine.engine.context, answer.parcel).body)
        kept = machine.ledger.replies[machine.name, message_id]
        if body not in kept:
            kept.append(body)

    def _alone(self, message_id: str) -> None:
        ledger, name = self._machine.ledger, self._machine.name
        ledger.left_alone[name, message_id].append(self._machine.clock.now)


def note_report(ledger: Ledger, sender: str, receiver: str, body: bytes) -> None:
    """Remember parcels with an ErrorList."""
    body = _opened(body)
    if b"ErrorList" in body:
        ledger.reports.append((sender, receiver, body))


def _opened(body: bytes) -> bytes:
    """A body, followed by its parts in base64 (as in mail) decoded."""
    if b"base64" not in body:
        return body
    found = [body]
    for lines in _BASE64.findall(body):
        with contextlib.suppress(binascii.Error):
            found.append(binascii.a2b_base64(lines))
    return b"".join(found)


def _parcel_of(reply: Reply | None) -> Parcel | None:
    if reply is None or not reply.body:
        return None
    return Parcel(reply.content_type, reply.body, reply.headers)


def _with_body(parcel: Parcel, body: bytes) -> Parcel:
    return Parcel(parcel.content_type, body, parcel.headers)
