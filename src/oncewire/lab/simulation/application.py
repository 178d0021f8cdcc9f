"""Application: what stands behind one machine: it submits, takes, refuses, answers and is told.

Where it is called it is called with one message of a channel at a time, as `handler.hand_over`
does; otherwise it comes for its messages and has each under a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from oncewire.errors import OncewireError
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.runtime.offers import REFUSALS_MAX
from oncewire.lab.simulation.papers import SERVICE, cpa_id_of
from oncewire.lab.simulation.plan import BUYER, Ending, Mood, Order, Reply, Whim
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import MILLISECOND, SECOND, Duration
from oncewire.protocol.states import ENDLESS

if TYPE_CHECKING:
    from oncewire.handler.runtime.engine import Engine
    from oncewire.lab.simulation.connection import Node

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
            "take",
            lambda: found.extend(engine.hand_over(16, lease, one_by_one=self._called)),
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
