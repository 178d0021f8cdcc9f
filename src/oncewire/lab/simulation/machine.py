"""Machine: one node of a world: a real engine, its disk, its clock, its application.

It drives the engine as `handler.handler` and its commit loop do: verbs, one commit, then what may
leave. The plan says what goes wrong at which step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from oncewire.agreement.agreement import Agreements
from oncewire.errors import OncewireError, StoreFull, StoreProblem
from oncewire.handler.actions import (
    Action,
    Decided,
    Join,
    Notice,
    Post,
    PostAnswer,
    PostOn,
    PostReply,
    Ready,
    Relay,
    Submission,
)
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.offers import REFUSALS_MAX
from oncewire.handler.runtime.upkeep import PROBE_EVERY, join_at_once
from oncewire.handler.sending.transmit import Transmission, left_ways, take_again, take_up
from oncewire.journal.row import Row
from oncewire.lab.simulation.connection import Clock, Door, Links, Node, NodeWorld
from oncewire.lab.simulation.papers import SERVICE, Paper, cpa_id_of, papers_of
from oncewire.lab.simulation.plan import (
    BUYER,
    Ending,
    Fall,
    FullDisk,
    Ledger,
    Mood,
    Order,
    Plan,
    Reply,
    Whim,
    keys_of,
)
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import MILLISECOND, SECOND, Duration, Instant
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import ENDLESS
from oncewire.store.memory.store import MemoryStore

# Application: what stands behind one machine: it submits, takes, refuses, answers and is told.
#
# Where it is called it is called with one message of a channel at a time, as `handler.hand_over`
# does; otherwise it comes for its messages and has each under a lease.


THINKS: Duration = 30 * MILLISECOND
LATER: Duration = 3 * SECOND
PAUSE: Duration = 2 * SECOND
LEASE: Duration = 20 * SECOND
TRIES = 40
"""How often an application submits what is refused, a second apart, before it gives up."""


def document_of(order: Order) -> bytes:
    """The document of an order; no two are alike."""
    return f"order {order.number} ".encode().ljust(order.size, b".")


def submission_of(order: Order, document: bytes) -> Submission:
    """What an application hands over for an order."""
    payloads = () if order.size == 0 else (Payload.of("document", "text/plain", document),)
    other = order.receiver if order.sender == BUYER else order.sender
    return Submission(
        cpa_id_of(other),
        Service(SERVICE),
        "Order",
        payloads,
        conversation_id=f"talk-{order.conversation}",
        message_id=order.message_id,
        time_to_live=order.lifetime,
        best_effort=order.best_effort,
    )


class Application:
    """One party's software, which may be in any mood."""

    def __init__(self, machine: Node, whims: Mapping[int, Whim]) -> None:
        self._machine, self._whims = machine, whims
        self._orders = {order.message_id: order for order in machine.around.plan.orders}
        self._refusals: dict[str, int] = {}
        # Given up before, and offered again: where copies pass, each is a message of its own (C40).
        self._copies: set[str] = set()
        self._looking = False
        # Submissions that it has still to make.
        self.busy = 0

    @property
    def _called(self) -> bool:
        return self._machine.name in self._machine.setting.called

    # --- what it hands in ---

    def submit(self, submission: Submission, tries: int = TRIES) -> None:
        """Submit, and repeat with the same id until it is accepted or refused for good."""
        machine = self._machine
        if submission.message_id is not None:
            document = submission.payloads[0].data if submission.payloads else b""
            machine.ledger.documents.setdefault(submission.message_id, document or b"")
        ending = machine.turn("submit", lambda: self._hand_in(submission), (OncewireError,))
        if ending is Ending.RAISED:
            tries -= 1
        if ending is not Ending.DONE and tries > 0:
            self._submit_later(SECOND, submission, tries)

    def _hand_in(self, submission: Submission) -> None:
        try:
            self._machine.engine.submit(submission)
        except OncewireError as problem:
            self._machine.ledger.refused[submission.message_id or ""] = str(problem)
            raise

    def _submit_later(self, delay: Duration, submission: Submission, tries: int = TRIES) -> None:
        self.busy += 1

        def submit() -> None:
            self.busy -= 1
            self.submit(submission, tries)

        self._machine.clock.after(delay, submit)

    # --- what it takes ---

    def begin(self) -> None:
        """Note that a process of the handler is up."""
        if self._machine.name in self._machine.setting.ends:
            self.look_soon()
            self.hear_soon()

    def look_soon(self) -> None:
        """Look for messages to take soon."""
        if not self._looking:
            self._looking = True
            self._machine.clock.after(THINKS, self._look)

    def _look(self) -> None:
        self._looking = False
        machine, engine = self._machine, self._machine.engine
        found: list[GivenMessage] = []
        lease = ENDLESS if self._called else LEASE
        ending = machine.turn(
            "take", lambda: found.extend(engine.hand_over(16, lease, one_by_one=self._called))
        )
        if ending is Ending.FULL or len(found) == 16:
            machine.clock.after(SECOND, self.look_soon)
        if ending is not Ending.DONE:
            return
        for taken in found:
            self._offer(engine, taken)
        if found and not self._called:
            # A lease may run out: then it is there again.
            machine.clock.after(LEASE + SECOND, self.look_soon)

    def _offer(self, engine: Engine, taken: GivenMessage) -> None:
        machine, message_id = self._machine, taken.message_id
        document = taken.payloads[0].data if taken.payloads else b""
        machine.ledger.shown[machine.name, message_id].append(document or b"")
        if (machine.name, message_id) in machine.ledger.given_up:
            self._copies.add(message_id)
        whim = self._whim(taken)
        delay = THINKS
        if whim is not None and machine.mood_of(whim) is Mood.SLOW:
            machine.ledger.happened["slow application"] += 1
            delay += whim.amount
        machine.clock.after(delay, lambda: self._decide(engine, taken))

    def _whim(self, taken: GivenMessage) -> Whim | None:
        order = self._orders.get(taken.message_id)
        return None if order is None else self._whims.get(order.number)

    def _decide(self, engine: Engine, taken: GivenMessage) -> None:
        machine = self._machine
        if machine.engine is not engine or not machine.up:
            return
        given_up = (machine.name, taken.message_id) in machine.ledger.given_up
        if given_up and taken.message_id not in self._copies:
            # The handler no longer hears an application that took it meanwhile.
            return
        whim, refusals = self._whim(taken), self._refusals.get(taken.message_id, 0)
        mood = machine.mood_of(whim)
        often = {Mood.REFUSES: whim.amount if whim else 0, Mood.FORGETS: 1}
        if mood is not None and refusals < often.get(mood, 0):
            machine.ledger.happened[f"application {mood.value}"] += 1
            self._refuse(engine, taken, refusals + 1, "it does not want to")
            return
        responses = self._responses(taken)
        ending = machine.turn(
            "confirm",
            lambda: engine.confirm(taken.sender, taken.message_id, responses),
            (OncewireError,),
        )
        if ending is Ending.RAISED and refusals > REFUSALS_MAX:
            # What it wants to answer is not accepted, so it goes without an answer.
            ending = machine.turn("confirm", lambda: engine.confirm(taken.sender, taken.message_id))
        if ending is Ending.DONE:
            order = self._orders.get(taken.message_id)
            if order is not None and order.reply in (Reply.LATER, Reply.BOTH):
                self._submit_later(LATER, self._response(taken, order, "later"))
            if self._called:
                # The next one of its channel may follow.
                self.look_soon()
        elif ending is not Ending.DOWN:
            self._refuse(engine, taken, refusals + 1, "its answer is not accepted", self._decide)

    def _refuse(
        self,
        engine: Engine,
        taken: GivenMessage,
        refusals: int,
        reason: str,
        again: Callable[[Engine, GivenMessage], None] | None = None,
    ) -> None:
        """`again`: what follows where that is not another offer, for the application has it."""
        machine = self._machine
        self._refusals[taken.message_id] = refusals
        if not self._called:
            # It comes for it again when its lease is over.
            return
        if refusals == REFUSALS_MAX:
            machine.turn("operate", lambda: engine.refused(taken.sender, taken.message_id, reason))
        go_on = again or self._offer_again
        machine.clock.after(PAUSE, lambda: go_on(engine, taken))

    def _offer_again(self, engine: Engine, taken: GivenMessage) -> None:
        machine = self._machine
        if machine.engine is not engine or not machine.up:
            return
        still: list[bool] = []
        ending = machine.turn(
            "look", lambda: still.append(engine.still_offered(taken.sender, taken.message_id))
        )
        if ending is Ending.FULL:
            machine.clock.after(PAUSE, lambda: self._offer_again(engine, taken))
        elif ending is Ending.DONE and still[0]:
            self._decide(engine, taken)
        elif ending is Ending.DONE:
            self.look_soon()

    # --- what it is told ---

    def hear_soon(self) -> None:
        """Look for notices of failures soon."""
        engine = self._machine.engine
        self._machine.clock.after(THINKS, lambda: self._hear(engine))

    def _hear(self, engine: Engine) -> None:
        """It notes what failed in its own book, and only then says so."""
        machine = self._machine
        owed: list[Notice] = []
        if machine.engine is not engine:
            return
        machine.turn("look", lambda: owed.extend(engine.notices(100)))
        for notice in owed:
            machine.ledger.told[machine.name][notice.message_id] += 1
            ending = machine.turn("told", partial(engine.confirm_notice, notice.notice_id))
            if ending is not Ending.DONE:
                machine.clock.after(SECOND, self.hear_soon)
                return

    # --- what it answers ---

    def _responses(self, taken: GivenMessage) -> tuple[Submission, ...]:
        order = self._orders.get(taken.message_id)
        if order is None or order.reply not in (Reply.WITH, Reply.BOTH):
            return ()
        return (self._response(taken, order, "reply"),)

    def _response(self, taken: GivenMessage, order: Order, name: str) -> Submission:
        document = f"{name} to order {order.number}".encode()
        message_id = f"{name}-{order.number}@{self._machine.name}"
        self._machine.ledger.documents.setdefault(message_id, document)
        return Submission(
            taken.header.cpa_id,
            Service(SERVICE),
            "Answer",
            (Payload.of("document", "text/plain", document),),
            conversation_id=taken.header.conversation_id,
            message_id=message_id,
            ref_to_message_id=taken.message_id,
        )


class Surroundings(Protocol):
    """The world, as machines, operators and the judge see it."""

    plan: Plan
    clock: Clock
    links: Links
    ledger: Ledger
    probes: list[Order]

    @property
    def machines(self) -> list[Machine]:
        """All nodes."""

    def machine(self, name: str) -> Machine:
        """The node of that name."""

    def rows(self) -> list[Row]:
        """The journals of all nodes."""


class Machine:
    """One handler process, up or down."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name, self.around = name, around
        self.clock, self.links, self.ledger = around.clock, around.links, around.ledger
        self.setting = around.plan.setting
        self.store = MemoryStore(name)
        self.world = NodeWorld(around.clock, name, steady=self.setting.steady)
        # What is agreed with each partner now; a paper that is gone is None.
        self.papers: dict[str, Paper | None] = {
            paper.cpa_id: paper for paper in papers_of(self.setting, name)
        }
        self.up = False
        self.turns = 0
        # Durable steps, which faults count.
        self.steps = 0
        self._read = 0
        # The rows of the last commit.
        self.latest: list[Row] = []
        self._wake_at: Instant | None = None
        # The process that will look whether a transport works again.
        self._probing: Engine | None = None
        self._falls: dict[int, Fall] = {}
        self._full: set[int] = set()
        moods: dict[int, Whim] = {}
        for event in around.plan.events:
            if isinstance(event, Fall) and event.node == name:
                self._falls[event.nth] = event
            elif isinstance(event, FullDisk) and event.node == name:
                self._full.add(event.nth)
            elif isinstance(event, Whim):
                moods[event.order] = event
        self.application = Application(self, moods)
        self.door = Door(self)
        self.engine = self._process()
        self.boot()

    # --- life and death ---

    def _process(self) -> Engine:
        papers = [paper.agreement for paper in self.papers.values() if paper is not None]
        hub = self.name in self.setting.way
        keys = keys_of(self.name) if self.setting.signed else None
        if hub and not self.setting.hub_keys:
            keys = None
        node = HandlerContext(self.name, self.store, Agreements(papers), self.world, keys=keys)
        node.application_called = self.name in self.setting.called
        node.state.replying = self.door.replying.requests
        node.state.relaying = self.door.relaying.requests
        return Engine(node)

    def boot(self) -> None:
        """Start a process over what the store kept."""
        if self.up:
            return
        self.world.boot()
        self.door.close()
        self.engine = self._process()
        self.up = True
        if self.turn("start", self.engine.start) is not Ending.DONE and self.up:
            # A handler that cannot record its boot does not serve; it is started again.
            self.up = False
            self.clock.after(SECOND, self.boot)
            return
        take_up(self.engine.context)
        self._probe_later()
        self.application.begin()

    def restart(self) -> None:
        """Stop in good order and start with what is agreed now."""
        if self.up:
            self.turn("stop", self.engine.stop)
        if self.up:
            self.up = False
            self.store.crash()
            self.boot()

    def fall(self, lasts: Duration, where: str) -> None:
        """Lose everything that was not committed, and come back later."""
        self.ledger.happened[f"crash {where}"] += 1
        self.ledger.happened["crash"] += 1
        self.store.crash()
        self.up = False
        self.door.close()
        self.clock.after(lasts, self.boot)

    def accept_clock(self) -> None:
        """The operator says that the clock is right."""
        self.turn("operate accept", self.engine.accept_clock, (OncewireError,))

    def set_clock(self, by: Duration) -> None:
        """Set the clock, relative to what it shows."""
        self.world.offset += by
        # The commit loop looks again at least every second.
        self._schedule(self.clock.now + SECOND)

    # --- one turn: a verb, a commit, its actions ---

    def turn(
        self, step: str, verb: Callable[[], object], expected: tuple[type[Exception], ...] = ()
    ) -> Ending:
        """Run a verb and make it durable. The caller handles the `expected` exceptions; any other
        is a broken promise, for in a real handler it would be a line in a log."""
        if not self.up:
            return Ending.DOWN
        self.turns += 1
        ending = Ending.DONE
        try:
            verb()
        except StoreProblem as problem:
            if not isinstance(problem, StoreFull):
                self.ledger.raised(self.name, step, problem)
            ending = Ending.FULL
        except Exception as problem:  # noqa: BLE001  (whatever it is, it is told)
            if not isinstance(problem, expected):
                self.ledger.raised(self.name, step, problem)
            ending = Ending.RAISED
        committed = self._commit(step)
        return ending if committed is Ending.DONE else committed

    def _commit(self, step: str) -> Ending:
        durable = self.store.pending()
        fall = None
        if durable and not self.links.healed:
            self.steps += 1
            fall = self._falls.get(self.steps)
            if fall is not None and not fall.after:
                self.fall(fall.lasts, f"before {step}")
                return Ending.DOWN
            if self.steps in self._full:
                self.ledger.happened["full disk"] += 1
                self.store.fail_next_commit(StoreFull("the simulated disk is full"))
        try:
            actions = self.engine.commit()
        except StoreProblem:
            self._schedule(self.clock.now + SECOND)
            return Ending.FULL
        except OncewireError as problem:
            self.ledger.raised(self.name, f"the commit of {step}", problem)
            return Ending.RAISED
        rows = self.latest = self._note_rows()
        if fall is not None:
            self.fall(fall.lasts, f"after {step}")
            return Ending.DOWN
        self._check_sent(rows, actions)
        for action in actions:
            self._perform(action)
        self.wake()
        self._probe_later()
        return Ending.DONE

    def _note_rows(self) -> list[Row]:
        """The rows of this commit; each is remembered with the true time."""
        with self.store.reader() as reader:
            rows = reader.journal_since(self._read, 100_000)
        if not rows:
            return []
        for row in rows:
            self.ledger.written_at[self.name, row.seq] = self.clock.now
        self._read = rows[-1].seq
        return rows

    def _check_sent(self, rows: list[Row], actions: list[Action]) -> None:
        """What is journaled as an attempt leaves with the commit that says so."""
        left = set()
        for action in actions:
            post: object = action
            if isinstance(action, PostReply):
                post = action.post
            elif isinstance(action, Relay):
                post = action.instead
            if isinstance(post, Post):
                left.add((post.message_id, post.attempt))
        for row in rows:
            if row.kind == Kind.SENT.value and (row.message_id, row.attempt) not in left:
                sentence = f"Attempt {row.attempt} is journaled as sent, and nothing left."
                self.ledger.broke("not sent", sentence, self.name, row.message_id)

    # --- timers ---

    def wake(self) -> None:
        """See to it that the engine's timers are looked at when they are due."""
        wake = self.engine.next_wake()
        if wake is not None:
            delay = wake - self.engine.context.now()
            # A message that is due but in flight is looked at again soon, not at once.
            self._schedule(self.clock.now + max(delay, 50 * MILLISECOND))

    def _schedule(self, at: Instant) -> None:
        if self._wake_at is not None and self.clock.now < self._wake_at <= at:
            return
        self._wake_at = at
        self.clock.at(at, lambda: self._tick(at))

    def _tick(self, at: Instant) -> None:
        if self._wake_at != at:
            return
        self._wake_at = None
        if self.turn("tick", self.engine.tick) in (Ending.RAISED, Ending.FULL):
            self._schedule(self.clock.now + SECOND)

    # --- transports that were left ---

    def _probe_later(self) -> None:
        engine, state = self.engine, self.engine.context.state
        wanted = state.left or state.contacts.longest_silent(1)
        if wanted and self._probing is not engine:
            self._probing = engine
            self.clock.after(PROBE_EVERY, lambda: self._probe(engine))

    def _probe(self, engine: Engine) -> None:
        """Try what was left, as `runtime.upkeep.Probing` does."""
        if self.engine is not engine or not self.up:
            return
        self._probing = None
        for way in left_ways(engine.context):
            receiver = way.address.split("/")[2]
            there = self.around.machine(receiver).up
            if there and self.links.is_open(self.name, receiver, way.transport):
                left = (way.peer, way.transport) in engine.context.state.left
                happened = "transport taken again" if left else "silent partner probed"
                self.ledger.happened[happened] += 1
                ending = self.turn("probe", lambda w=way: take_again(engine.context, w))  # type: ignore[misc]
                if ending is not Ending.DONE and left:
                    engine.context.state.left.add((way.peer, way.transport))
        self._probe_later()

    # --- actions ---

    def _perform(self, action: Action) -> None:
        if isinstance(action, Post):
            self.door.post(action)
        elif isinstance(action, PostAnswer):
            self.door.post_answer(action)
        elif isinstance(action, PostReply):
            self._let_reply(action)
        elif isinstance(action, PostOn):
            self.door.post_on(action)
        elif isinstance(action, Relay):
            # To the connection that waits for the next hop's answer, or on a connection of its own.
            waiting = self.door.relaying.give(action)
            if not waiting and action.instead is not None:
                self._perform(action.instead)
            elif waiting and isinstance(action.instead, Post):
                self._left_on_connection(action.instead)
        elif isinstance(action, Notice):
            self.application.hear_soon()
        elif isinstance(action, Join):
            self.turn("join", lambda: join_at_once(self.engine, action))
        elif isinstance(action, Decided):
            self.ledger.given_up.add((self.name, action.message_id))
            self.ledger.happened["received message given up"] += 1
            self.application.look_soon()
        elif isinstance(action, Ready):
            self.application.look_soon()

    def _let_reply(self, reply: PostReply) -> None:
        """The connections that wait get it; where none does, it travels on its own."""
        waiting = self.door.replying.wake(reply.sender, reply.message_id)
        if reply.post is not None and waiting:
            self._left_on_connection(reply.post)
        elif reply.post is not None:
            self.door.post(reply.post)

    def _left_on_connection(self, post: Post) -> None:
        """A message that left as a reply was sent once."""
        ended = Transmission(post.message_id, post.attempt, sent=True)
        engine = self.engine

        def over() -> None:
            self.turn_of(engine, "outcome", lambda: engine.transmission_over(ended))

        self.clock.after(MILLISECOND, over)

    def turn_of(self, engine: Engine, step: str, verb: Callable[[], object]) -> Ending:
        """A turn of the process that began something; there is none once that process is gone."""
        return self.turn(step, verb) if self.engine is engine else Ending.DOWN

    # --- looking ---

    def rows(self) -> list[Row]:
        """Everything this node recorded."""
        with self.store.reader() as reader:
            return reader.journal_since(0, 1_000_000)

    def mood_of(self, whim: Whim | None) -> Mood | None:
        """An application's mood; in a healed world it has none."""
        return None if whim is None or self.links.healed else whim.mood
