"""Actor: one node of the simulation: a real engine, a store that can crash, an application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from oncewire.agreement.agreements import Agreements
from oncewire.errors import NotAllowed, StoreFull, StoreProblem
from oncewire.handler.actions import Action, Join, Notice, Post, PostAnswer, PostOn, Relay, Source
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.door import Connection, Connections
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.upkeep import join_at_once
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.seal import whole_parcel
from oncewire.handler.sending.transmit import Transmission
from oncewire.handler.submission import Submission
from oncewire.journal.row import Row
from oncewire.lab.simulation.network import Clock, Network, NodeWorld
from oncewire.message.instant import MILLISECOND, SECOND, Duration, Instant
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import StoredParcel
from oncewire.wire.parcel import Parcel

DOWNTIME: Duration = 20 * SECOND
LEASE: Duration = 30 * SECOND
POLL: Duration = SECOND
HEAR: Duration = 100 * MILLISECOND


class Crashed(Exception):
    """The process of this node died in the middle of what it was doing."""


class Peers(Protocol):
    """How an actor finds the others."""

    def actor(self, name: str) -> Actor:
        """The node of that name."""


class Actor:
    """One handler process: it can be up or down, and crash around every durable step."""

    def __init__(
        self, name: str, agreements: Agreements, clock: Clock, network: Network, peers: Peers
    ) -> None:
        self.name = name
        self.clock, self.network, self.peers = clock, network, peers
        self.store = MemoryStore(name)
        self.world = NodeWorld(clock, name)
        self._agreements = agreements
        self.up = False
        # The application's own book of failures that it was told of, in order.
        self.notices: list[str] = []
        self.transitions = 0
        self._wake_at: Instant | None = None
        self._connections = Connections()
        self.engine = Engine(HandlerContext(name, self.store, agreements, self.world))
        self.boot()

    # --- life and death ---

    def boot(self) -> None:
        """Start a process over whatever the store kept."""
        self.world.boot()
        self.engine = Engine(HandlerContext(self.name, self.store, self._agreements, self.world))
        # The connections of the process before are gone with it.
        self._connections = Connections()
        self.engine.context.state.relaying = self._connections.requests
        self.up = True
        if not self.turn("start", self.engine.start) and self.up:
            # A handler that cannot record its boot does not serve; it is started again.
            self.up = False
            self.clock.after(SECOND, self.boot)
        self.hear_later()

    def crash(self, where: str) -> None:
        """Lose everything that was not committed, and come back later."""
        self.network.faults[f"crash {where}"] += 1
        self.network.faults["crash"] += 1
        self.store.crash()
        self.up = False
        self.clock.after(self.clock.chance.randrange(DOWNTIME) + 1, self.boot)

    def _may_crash(self, where: str) -> None:
        if not self.network.healed and self.clock.happens(self.network.options.crash):
            self.crash(where)
            raise Crashed

    # --- one turn: a verb, a commit, its actions ---

    def turn(self, step: str, verb: Callable[[], object]) -> bool:
        """Run a verb and make it durable; False when the node died or the disk was full.

        A crash may come before the commit (the verb never happened) or after it (it
        happened, but nothing left the process).
        """
        if not self.up:
            return False
        self.transitions += 1
        try:
            verb()
            # Only a step that has something to keep is worth dying at.
            durable = self.store.pending()
            if durable:
                self._may_crash(f"before {step}")
            full = self.network.options.disk_full
            if durable and not self.network.healed and self.clock.happens(full):
                self.network.faults["disk_full"] += 1
                self.store.fail_next_commit(StoreFull("the simulated disk is full"))
            actions = self.engine.commit()
            if durable:
                self._may_crash(f"after {step}")
        except Crashed:
            return False
        except StoreProblem:
            self._schedule_wake(self.clock.now + SECOND)
            return False
        for action in actions:
            self._perform(action)
        self._wake()
        return True

    def _wake(self) -> None:
        wake = self.engine.next_wake()
        if wake is not None:
            # What is due but still under way is looked at again soon, not at once.
            wait = wake - self.engine.context.now()
            self._schedule_wake(self.clock.now + max(wait, 50 * MILLISECOND))

    def _schedule_wake(self, at: Instant) -> None:
        if self._wake_at is not None and self.clock.now < self._wake_at <= at:
            return
        self._wake_at = at
        self.clock.at(at, lambda: self._tick(at))

    def _tick(self, at: Instant) -> None:
        if self._wake_at == at:
            self._wake_at = None
        self.turn("tick", self.engine.tick)

    # --- actions ---

    def _perform(self, action: Action) -> None:
        if isinstance(action, Post):
            self._post(action)
        elif isinstance(action, PostAnswer):
            self._post_answer(action)
        elif isinstance(action, PostOn):
            self._post_on(action)
        elif isinstance(action, Relay):
            self._give(action)
        elif isinstance(action, Join):
            self.turn("join", lambda: join_at_once(self.engine, action))
        elif isinstance(action, Notice):
            self.hear_later()

    def _post(self, post: Post) -> None:
        """An attempt: the request travels, then the response, each with its own luck."""

        def over(ended: Transmission, reply: Parcel | None) -> None:
            self.turn("outcome", lambda: self.engine.transmission_over(ended, reply))

        self._exchange(post, post.attempt, over)

    def _post_on(self, post: PostOn) -> None:
        """The same for a message of others, whose own connection waits here."""

        def over(ended: Transmission, reply: Parcel | None) -> None:
            self.turn("onward over", lambda: self.engine.onward_over(post, ended, reply))

        self._exchange(post, 0, over)

    def _exchange(
        self,
        post: Post | PostOn,
        attempt: int,
        over: Callable[[Transmission, Parcel | None], None],
    ) -> None:
        engine = self.engine
        pending = [True]

        def end(
            sent: bool,
            certain: bool,
            reason: str,
            reply: Parcel | None = None,
            retry_after: int | None = None,
        ) -> None:
            # Whatever comes first decides; the process that asked may be gone by then.
            if pending[0] and self.engine is engine:
                pending[0] = False
                ended = Transmission(post.message_id, attempt, sent, certain, reason, retry_after)
                over(ended, reply)

        target = self.peers.actor(_host(post.address))
        if self.network.is_cut(self.name, target.name) or not target.up:
            self.clock.after(MILLISECOND, lambda: end(False, True, "connection refused"))
            return
        self.clock.after(post.timeout, lambda: end(False, False, "no response in time"))
        parcel = whole_parcel(engine.context, post.parcel)

        def respond(answer: Answer) -> None:
            body = (
                b""
                if answer.parcel is None
                else whole_parcel(target.engine.context, answer.parcel).body
            )
            self.network.carry(body, lambda data: hear(answer, data))

        def hear(answer: Answer, data: bytes) -> None:
            if answer.status >= 300:
                end(False, False, f"status {answer.status}", retry_after=answer.retry_after)
            elif answer.parcel is None:
                end(True, False, "")
            else:
                end(True, False, "", _with_body(answer.parcel, data))

        self.network.carry(
            parcel.body,
            lambda data: target.arrive(_with_body(post.parcel, data), respond),
        )

    def _post_answer(self, post: PostAnswer) -> None:
        engine = self.engine
        target = self.peers.actor(_host(post.address))
        if self.network.is_cut(self.name, target.name) or not target.up:
            return
        parcel = whole_parcel(engine.context, post.parcel)

        def arrived(data: bytes) -> None:
            target.arrive(_with_body(post.parcel, data), left)

        def left(answer: Answer) -> None:
            if self.engine is not engine or answer.status >= 300:
                return
            back = answer.parcel
            reply = None if back is None else whole_parcel(target.engine.context, back)
            self.turn("answer left", lambda: engine.answer_left(post, sent=True, reply=reply))

        self.network.carry(parcel.body, arrived)

    def arrive(self, parcel: Parcel, respond: Callable[[Answer], None]) -> None:
        """Bytes reach this node; the answer leaves only after the commit."""
        answers: list[Answer] = []
        opened: list[Connection] = []

        def receive() -> None:
            answer = self.engine.receive(parcel, Source("http", can_answer=True))
            answers.append(answer)
            if answer.relayed is not None:
                opened.append(self._keep_open(answer.relayed, respond))

        if not self.turn("receive", receive):
            for connection in opened:
                self._connections.close(connection)
        elif not opened:
            respond(answers[0])

    # --- connections that wait for the next hop ---

    def _keep_open(self, awaited: Awaited, respond: Callable[[Answer], None]) -> Connection:
        connections = self._connections

        def spoken() -> None:
            # Everything of this turn is given before the first of it is looked at.
            self.clock.after(0, lambda: self._relay(connections, connection, respond))

        connection = connections.open(awaited, spoken)
        self.clock.after(awaited.patience, lambda: self._relay(connections, connection, respond))
        return connection

    def _relay(
        self, connections: Connections, connection: Connection, respond: Callable[[Answer], None]
    ) -> None:
        if connections is not self._connections or not connections.close(connection):
            return
        answers: list[Answer] = []

        def look() -> None:
            answers.append(self.engine.relay(connection.awaited, connection.said))

        if self.turn("relay", look):
            respond(answers[0])

    def _give(self, relay: Relay) -> None:
        post = relay.instead
        if not self._connections.give(relay):
            if post is not None:
                self._perform(post)
        elif isinstance(post, Post):
            ended = Transmission(post.message_id, post.attempt, sent=True)
            self.turn("outcome", lambda: self.engine.transmission_over(ended))

    # --- the application ---

    def submit(self, submission: Submission) -> None:
        """The application submits, and repeats with the same id until it is accepted."""
        if not self.turn("submit", lambda: self.engine.submit(submission)):
            self.clock.after(SECOND, lambda: self.submit(submission))

    def consume(self) -> None:
        """The application takes what is ready and confirms it a little later."""
        taken: list[tuple[str, str]] = []

        def take() -> None:
            found = self.engine.take(16, LEASE)
            taken.extend((stored.incoming.sender, stored.incoming.message_id) for stored in found)

        if self.turn("take", take):
            for sender, message_id in taken:
                self._confirm_later(sender, message_id)
        self.clock.after(POLL, self.consume)

    def _confirm_later(self, sender: str, message_id: str) -> None:
        engine = self.engine

        def confirm() -> None:
            # An application that died with its handler does not remember what it took.
            if self.engine is engine:
                self.turn("confirm", lambda: engine.confirm(sender, message_id))

        self.clock.after(self.clock.chance.randrange(POLL) + 1, confirm)

    def hear_later(self) -> None:
        """The application asks soon what failed."""
        engine = self.engine
        self.clock.after(HEAR, lambda: self._hear(engine))

    def _hear(self, engine: Engine) -> None:
        """The application notes what failed in its own book, and only then says so."""
        found: list[Notice] = []
        if self.engine is not engine or not self.up:
            return
        self.turn("look", lambda: found.extend(engine.notices(100)))
        for notice in found:
            self.notices.append(notice.message_id)
            confirm = partial(engine.confirm_notice, notice.notice_id)
            if not self.turn("told", confirm):
                self.clock.after(SECOND, lambda: self._hear(engine))
                return

    # --- the operator ---

    def operate(self) -> None:
        """Meet every open incident: resume, or now and then abandon."""
        with self.store.reader() as reader:
            incidents = reader.incidents()
        for incident in incidents:
            give_up = self.clock.happens(self.network.options.abandon)
            meet = partial(self._meet, incident.message_id, incident.channel, give_up)
            self.turn("operate", meet)

    def _meet(self, message_id: str | None, channel: str | None, give_up: bool) -> None:
        try:
            if give_up and message_id is not None:
                self.engine.abandon(message_id)
            elif channel is not None:
                self.engine.resume(channel=channel)
            elif message_id is not None:
                self.engine.resume(message_id=message_id)
            else:
                self.engine.accept_clock()
        except NotAllowed:
            # Too late to send again under its id (C37): what is left is to give it up.
            if message_id is not None:
                self._abandon_if_possible(message_id)

    def _abandon_if_possible(self, message_id: str) -> None:
        try:
            self.engine.abandon(message_id)
        except NotAllowed:
            return

    # --- looking ---

    def journal(self) -> list[Row]:
        """Everything this node recorded."""
        with self.store.reader() as reader:
            return reader.journal_since(0, 100_000_000)


def _host(address: str) -> str:
    return address.split("/")[2]


def _with_body(parcel: StoredParcel, body: bytes) -> Parcel:
    return Parcel(parcel.content_type, body, parcel.headers)
