"""Actor: one node of the simulation: a real engine, a store that can crash, an application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from oncewire.agreement.agreements import Agreements
from oncewire.errors import NotAllowed, StoreFull, StoreProblem
from oncewire.handler.actions import Action, Notice, Post, PostAnswer
from oncewire.handler.answer import Answer
from oncewire.handler.engine import Engine
from oncewire.handler.node import Node
from oncewire.handler.seal import whole_parcel
from oncewire.handler.source import Source
from oncewire.handler.submit import Submission
from oncewire.handler.transmit import Transmission
from oncewire.journal.row import Row
from oncewire.message.instant import MILLISECOND, SECOND, Duration, Instant
from oncewire.simulation.clock import Clock, NodeWorld
from oncewire.simulation.network import Network
from oncewire.store.memory import MemoryStore
from oncewire.store.records import StoredParcel
from oncewire.wire.parcel import Parcel

DOWNTIME: Duration = 20 * SECOND
LEASE: Duration = 30 * SECOND
POLL: Duration = SECOND


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
        self.notices: list[str] = []
        self.transitions = 0
        self._wake_at: Instant | None = None
        self.engine = Engine(Node(name, self.store, agreements, self.world))
        self.boot()

    # --- life and death ---

    def boot(self) -> None:
        """Start a process over whatever the store kept."""
        self.world.boot()
        self.engine = Engine(Node(self.name, self.store, self._agreements, self.world))
        self.up = True
        if not self.turn("start", self.engine.start) and self.up:
            # A handler that cannot record its boot does not serve; it is started again.
            self.up = False
            self.clock.after(SECOND, self.boot)

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
            self._schedule_wake(max(wake, self.clock.now + 50 * MILLISECOND))

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
        elif isinstance(action, Notice):
            self.notices.append(action.message_id)

    def _post(self, post: Post) -> None:
        """An attempt: the request travels, then the response, each with its own luck."""
        engine = self.engine
        pending = [True]

        def over(sent: bool, certain: bool, reason: str, reply: Parcel | None = None) -> None:
            # Whatever comes first decides; the process that asked may be gone by then.
            if pending[0] and self.engine is engine:
                pending[0] = False
                ended = Transmission(
                    post.message_id, post.attempt, sent=sent, certain=certain, reason=reason
                )
                self.turn("outcome", lambda: engine.transmission_over(ended, reply))

        target = self.peers.actor(_host(post.address))
        if self.network.is_cut(self.name, target.name) or not target.up:
            self.clock.after(MILLISECOND, lambda: over(False, True, "connection refused"))
            return
        self.clock.after(post.timeout, lambda: over(False, False, "no response in time"))
        parcel = whole_parcel(engine.node, post.parcel)

        def respond(answer: Answer) -> None:
            body = (
                b""
                if answer.parcel is None
                else whole_parcel(target.engine.node, answer.parcel).body
            )
            self.network.carry(body, lambda data: hear(answer, data))

        def hear(answer: Answer, data: bytes) -> None:
            if answer.status >= 300:
                over(False, False, f"status {answer.status}")
            elif answer.parcel is None:
                over(True, False, "")
            else:
                over(True, False, "", _with_body(answer.parcel, data))

        self.network.carry(
            parcel.body,
            lambda data: target.arrive(_with_body(post.parcel, data), respond),
        )

    def _post_answer(self, post: PostAnswer) -> None:
        engine = self.engine
        target = self.peers.actor(_host(post.address))
        if self.network.is_cut(self.name, target.name) or not target.up:
            return
        parcel = whole_parcel(engine.node, post.parcel)

        def arrived(data: bytes) -> None:
            target.arrive(_with_body(post.parcel, data), left)

        def left(answer: Answer) -> None:
            if self.engine is engine and answer.status < 300:
                self.turn("answer left", lambda: engine.answer_left(post, sent=True))

        self.network.carry(parcel.body, arrived)

    def arrive(self, parcel: Parcel, respond: Callable[[Answer], None]) -> None:
        """Bytes reach this node; the answer leaves only after the commit."""
        answers: list[Answer] = []

        def receive() -> None:
            answers.append(self.engine.receive(parcel, Source("http", can_answer=True)))

        if self.turn("receive", receive):
            respond(answers[0])

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
            taken.extend((one.incoming.sender, one.incoming.message_id) for one in found)

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
