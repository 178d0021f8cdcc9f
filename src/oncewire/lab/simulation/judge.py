"""Judge: the checker's word on a wild world, and what only the world itself can know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncewire.agreement.resolve import resolve
from oncewire.errors import OncewireError
from oncewire.handler.encryption import whole_parcel
from oncewire.journal.check import check_journal
from oncewire.journal.predicates.context import Violation
from oncewire.journal.predicates.sender import untold
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    CONFIRMED,
    EPOCH_ENDED,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    IGNORED,
    INCIDENT,
    JOINED,
    NOTIFIED,
    RECEIVED,
    RESOLVED,
    RESUMED,
    SENT,
    SUBMITTED,
    SUSPENDED,
    TERMS,
    TRANSIENT,
)
from oncewire.lab.simulation.plan import HAUNTED, Change, ClockStep, Ledger, Mishap, Order
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import read_terms
from oncewire.protocol.terms import DuplicateAnswer, SyncRetries, Terms
from oncewire.wire import codec

if TYPE_CHECKING:
    from oncewire.lab.simulation.machine import Surroundings


# --- standstills ---
#
# A receiver that asks for a pause gets nothing meanwhile (RTY-8), and a suspended channel stands
# until an operator decides: one message causes this and others wait. So the rows of a message
# alone do not say when its next attempt was due.

_LIFTS = (RESUMED, ABANDONED, EPOCH_ENDED, RESOLVED)


@dataclass(frozen=True, slots=True)
class _Standstill:
    begin: Instant
    # None: it has not ended.
    end: Instant | None
    # The message that caused it.
    message_id: str | None = None

    def ended(self, at: Instant) -> _Standstill:
        return self if self.end is not None and self.end <= at else replace(self, end=at)


class Standstills:
    """When nodes rightly send nothing to a receiver or on a channel, by the true time of a row."""

    def __init__(self, rows: Iterable[Row], at: Callable[[Row], Instant]) -> None:
        self._of: dict[tuple[str, str, str], list[_Standstill]] = defaultdict(list)
        for row in sorted(rows, key=lambda standstill: (standstill.node, standstill.seq)):
            if row.kind == TRANSIENT and row.peer is not None:
                # Both instants are of the node's own clock, so what lies between them is true.
                lasts = notes.Transient.read(row.detail).until - row.at
                standstill = _Standstill(at(row), at(row) + max(0, lasts))
                self._of[row.node, "peer", row.peer].append(standstill)
            elif row.kind == SUSPENDED and row.channel is not None:
                standstill = _Standstill(at(row), None, row.message_id)
                self._of[row.node, "channel", row.channel].append(standstill)
            elif row.kind in _LIFTS and row.channel is not None:
                self._lift(row.node, "channel", row.channel, at(row), row)
            elif row.kind == RESUMED and row.message_id is None and row.peer is not None:
                self._lift(row.node, "peer", row.peer, at(row), row)
            elif row.kind == notes.Kind.CLOCK_SET:
                self._lift(row.node, "clock", "", at(row), row)
                if notes.ClockSet.read(row.detail).verdict == "in doubt":
                    self._of[row.node, "clock", ""].append(_Standstill(at(row), None))

    def _lift(self, node: str, of: str, name: str, at: Instant, row: Row) -> None:
        """End them, unless the row is about a message other than the one that they stand for: the
        first that stopped a channel is the one that it waits for."""
        found = self._of[node, of, name]
        blocking = next((each for each in found if each.end is None), None)
        if blocking is None or row.message_id in (None, blocking.message_id):
            found[:] = [standstill.ended(at) for standstill in found]

    def due(self, row: Row, due: Instant, slack: Duration, *, over: bool = False) -> Instant | None:
        """When a timer that runs out at `due` is heeded for a message of this row's receiver
        and channel; None: not before an operator decides. `over`: by the node's clock the message
        has outlived its time then, which a clock in doubt does not decide.

        What is due is done a moment later (`slack`), and the next standstill may come first: of
        all that wait for the end of one, the first whose retries are used up stops the others.
        """
        keys = [(row.node, "peer", row.peer or ""), (row.node, "channel", row.channel or "")]
        if over:
            keys.append((row.node, "clock", ""))
        found = [standstill for key in keys for standstill in self._of.get(key, ())]
        for standstill in sorted(found, key=lambda standstill: standstill.begin):
            if standstill.begin > due + slack:
                break
            if standstill.end is None:
                return None
            due = max(due, standstill.end)
        return due


_SAFETY = ("S1", "S2", "S3", "S6", "S9", "S14", "S15")

SLACK: Duration = 3 * SECOND
"""How much later than its timer something may happen."""

_TOO_LARGE = "and no more than"


def judge(world: Surroundings) -> tuple[Violation, ...]:
    """Every broken promise of a world that has healed and come to rest."""
    rows = world.rows()
    report = check_journal(rows, healed=True, calm=world.plan.setting.calm)
    books = {machine.name: set(world.ledger.told[machine.name]) for machine in world.machines}
    found = [*report.violations, *report.quarantined, *untold(rows, books)]
    if any(isinstance(event, ClockStep) for event in world.plan.events):
        # S11 compares instants of one node across boots; `History` judges them by the true time.
        found = [violation for violation in found if violation.predicate != "S11"]
    if any(
        isinstance(event, Change) or (isinstance(event, Mishap) and event.by == HAUNTED)
        for event in world.plan.events
    ):
        # What a receiver has no agreement for it refuses and forgets: its sender believes that, and
        # a copy that the network keeps until an agreement is there proves both of them wrong.
        refused = {
            row.message_id
            for row in rows
            if row.kind == notes.Kind.REFUSED and row.terms_id is None
        }
        found = [
            violation
            for violation in found
            if violation.predicate != "S5" or violation.message_id not in refused
        ]
    # A message that an operator abandoned is lost, and its journal says so.
    found = [
        violation
        for violation in found
        if violation.predicate != "S4"
        or "given up by" not in violation.sentence
        or (violation.node, violation.message_id) not in world.ledger.abandoned
    ]
    history = History(world, rows)
    history.judge()
    found += world.ledger.found
    setting = world.plan.setting
    # A hub before another hub cannot check the To Party's signature: where it asks for no
    # acknowledgement of its hop either, it never hears that its copy arrived, and says so.
    unheard = setting.hubs > 1 and dict(setting.said).get("ack.hop") == "never"
    if setting.hubs and setting.signed and (unheard or not setting.hub_keys):
        # The ends do not believe what a hub without keys says, so little arrives: it has to answer.
        found = [
            violation
            for violation in found
            if violation.kind == "raised" or violation.predicate in _SAFETY
        ]
    return tuple(found)


class History:
    """The rows of all nodes by node and message, with the true time at hand."""

    def __init__(self, world: Surroundings, rows: list[Row]) -> None:
        self.world = world
        self.ledger: Ledger = world.ledger
        self.terms: dict[str, Terms] = {}
        self.traces: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.notices: set[str] = set()
        # The document of each part: what is promised is promised of the document.
        self.parts: dict[str, str | None] = {}
        for row in rows:
            if row.kind == TERMS and row.terms_id is not None:
                self.terms[row.terms_id] = read_terms(row.detail)
            if row.message_id is not None:
                self.traces[row.node, row.message_id].append(row)
                submitted = notes.Submitted.read(row.detail) if row.kind == SUBMITTED else None
                if submitted is not None and submitted.notice:
                    self.notices.add(row.message_id)
                if submitted is not None and submitted.is_part:
                    self.parts[row.message_id] = submitted.split_id
        # Where a hub cannot deliver, its operator is called; a notice to the From Party is only
        # as reliable as its wire format lets it be.
        hubs = world.plan.setting.way
        self.called = {row.message_id for row in rows if row.kind == INCIDENT and row.node in hubs}
        # Called about the notice is called about what it tells of.
        self.called |= {
            row.message_id for row in rows if row.kind == NOTIFIED and row.ref_to in self.called
        }
        # Called about a part is called about its document.
        self.called |= {whole for part, whole in self.parts.items() if part in self.called}
        self.confirmed = {row.message_id for row in rows if row.kind == CONFIRMED}
        # What an operator of its receiver gave up, be it one message or a document in parts.
        self.given_up = {
            message_id
            for node, message_id in world.ledger.abandoned
            if ABANDONED in (kinds := {row.kind for row in self.traces.get((node, message_id), ())})
            and kinds & {RECEIVED, JOINED}
        }
        self.standstills = Standstills(rows, self.at)
        self.followed = [
            (row.node, row.seq, clock.by)
            for row in rows
            if row.kind == notes.Kind.CLOCK_SET
            and (clock := notes.ClockSet.read(row.detail)).verdict != "in doubt"
        ]

    def at(self, row: Row) -> Instant:
        """When a row was really written."""
        return self.ledger.written_at[row.node, row.seq]

    def judge(self) -> None:
        """Everything that the journals alone cannot show."""
        for node, message_id in self.ledger.given_up:
            told = [row.kind for row in self.traces.get((node, message_id), ())]
            # Where the terms do not stop repeats, a copy is a message of its own (C40).
            if CONFIRMED in told and told.count(RECEIVED) == 1:
                sentence = "It was given up, and is called confirmed."
                self.ledger.broke("falsified", sentence, node, message_id)
        self._accepted()
        for order in self.world.probes:
            self._delivered(order, "wedged", "all trouble was over")
        self._documents()
        for (node, message_id), rows in self.traces.items():
            kinds = {row.kind for row in rows}
            if SUBMITTED in kinds and message_id not in self.parts:
                self._told(node, message_id, rows)
            if SENT in kinds:
                self._timing(node, message_id, rows)
            if HANDED_OVER in kinds:
                self._behind_backs(node, message_id, rows)
                self._same_answer(node, message_id, rows)
        self._warnings()
        self._heard()

    # --- peace ---

    def _accepted(self) -> None:
        """In a calm world no submission is refused; the rest of calm is the checker's (L3)."""
        for order in self.world.plan.orders if self.world.plan.setting.calm else ():
            # Under some agreements what is too large cannot be split, and is refused by name.
            too_large = _TOO_LARGE in self.ledger.refused.get(order.message_id, "")
            if (order.sender, order.message_id) not in self.traces and not too_large:
                self._delivered(order, "calm", "no fault was drawn")

    def _delivered(self, order: Order, kind: str, why: str) -> None:
        rows = self.traces.get((order.sender, order.message_id), [])
        told = [row.kind for row in rows if row.kind in (FAILED, NOTIFIED)]
        if order.message_id in self.given_up:
            return
        if order.message_id not in self.confirmed:
            refused = self.ledger.refused.get(order.message_id)
            sentence = f"It did not arrive although {why}."
            if not rows and refused is not None:
                sentence = f"It was not accepted although {why}: {refused}"
            self.ledger.broke(kind, sentence, order.sender, order.message_id)
        elif told:
            sentence = f"It arrived and is called a failure ({', '.join(told)}) although {why}."
            self.ledger.broke(kind, sentence, order.sender, order.message_id)

    # --- what applications have and hear ---

    def _documents(self) -> None:
        for (node, message_id), shown in self.ledger.shown.items():
            document = self.ledger.documents.get(message_id)
            if document is None:
                self.ledger.broke("invented", "It was never submitted.", node, message_id)
            elif any(content != document for content in shown):
                sentence = "The application was shown another document than was submitted."
                self.ledger.broke("altered", sentence, node, message_id)

    def _told(self, node: str, message_id: str, rows: list[Row]) -> None:
        """An application that was promised delivery has a delivery or a notice."""
        submitted = next(row for row in rows if row.kind == SUBMITTED)
        if message_id in self.notices or not self._terms_of(submitted).runs_protocol:
            return
        heard = self.ledger.told[node][message_id] > 0 or message_id in self.called
        heard = heard or message_id in self.given_up
        if not heard and message_id not in self.confirmed:
            sentence = "No application has it, and none was told."
            self.ledger.broke("lost", sentence, node, message_id)

    # --- time ---

    def _timing(self, node: str, message_id: str, rows: list[Row]) -> None:
        begun = next((row for row in rows if row.kind in (SUBMITTED, FORWARDED)), None)
        if begun is None:
            return
        terms = self._terms_of(begun)
        if not terms.runs_protocol:
            return
        self._late(node, message_id, begun, rows, terms)
        for row in rows:
            # A part has the lifetime of its document, which began before it.
            whole = message_id not in self.parts
            if row.kind == EXPIRED and row.boot == begun.boot and whole:
                self._hasty(node, message_id, begun, row, terms)

    def _late(self, node: str, message_id: str, begun: Row, rows: list[Row], terms: Terms) -> None:
        """An attempt comes when its timer runs out, also where the clock was set meanwhile."""
        before: Row | None = None
        lives_until = begun.at + terms.persist_duration
        if begun.kind == SUBMITTED:
            lives_until = min(
                lives_until, notes.Submitted.read(begun.detail).time_to_live or lives_until
            )
        for row in rows:
            if row.kind in (SENT, EXHAUSTED) and before is not None and before.boot == row.boot:
                gap = self.at(row) - self.at(before)
                wait = max(terms.timeout, terms.retry_interval) + terms.sync_timeout
                over = before.at + wait >= lives_until
                due = self.standstills.due(row, self.at(before) + wait, SLACK, over=over)
                # After a doubt it is looked at by its own interval.
                slack = SLACK + (terms.retry_interval if over else 0)
                if due is not None and self.at(row) > due + slack:
                    words = f"The next attempt came {gap / SECOND:.0f} s later, not after "
                    wait = due - self.at(before)
                    self.ledger.broke("late", f"{words}{wait / SECOND:.0f} s.", node, message_id)
                    return
                if (
                    row.kind == SENT
                    and before.kind == SENT
                    and gap < min(terms.timeout, terms.retry_interval)
                ):
                    sentence = f"The next attempt came after {gap / SECOND:.3f} s already."
                    self.ledger.broke("early", sentence, node, message_id)
                    return
            if row.kind == SENT:
                before = row
            elif row.kind in (RESUMED, INCIDENT):
                before = None

    def _hasty(self, node: str, message_id: str, begun: Row, row: Row, terms: Terms) -> None:
        """Nothing expires before its time, by a clock that tells the time."""
        # A deadline is an instant of UTC and stays where a clock that was behind has put it.
        behind = sum(
            max(0, by)
            for where, seq, by in self.followed
            if where == node and begun.seq < seq < row.seq
        )
        lived = self.at(row) - self.at(begun) + behind
        lifetime = terms.persist_duration
        if notes.Expired.read(row.detail).by == "TimeToLive":
            orders = (*self.world.plan.orders, *self.world.probes)
            own = {order.message_id: order.lifetime for order in orders}.get(message_id)
            lifetime = own or terms.time_to_live or 0
        if begun.kind == SUBMITTED and lived < lifetime - SLACK:
            sentence = f"It expired after {lived / SECOND:.0f} s already."
            self.ledger.broke("hasty", sentence, node, message_id)

    # --- synchronous replies ---

    def _behind_backs(self, node: str, message_id: str, rows: list[Row]) -> None:
        """Where a request is not repeated its initiator has given up with its connection, unless
        an operator has it sent once more."""
        left = self.ledger.left_alone.get((node, message_id), [])
        first = next(row for row in rows if row.kind == HANDED_OVER)
        terms = self._terms_of(first)
        if not left or terms.sync_retries is not SyncRetries.NONE:
            return
        asked = max(
            self.at(row)
            for (_, named), trace in self.traces.items()
            if named == message_id
            for row in trace
            if row.kind == SENT and self.at(row) < self.at(first)
        )
        if any(asked < gone < self.at(first) for gone in left):
            sentence = "It was handed over after the connection that asked for it had gone."
            self.ledger.broke("behind backs", sentence, node, message_id)

    def _same_answer(self, node: str, message_id: str, rows: list[Row]) -> None:
        """Under the policy `original` every copy of a request gets the first response."""
        replies = self.ledger.replies.get((node, message_id), [])
        terms = self._terms_of(next(row for row in rows if row.kind == HANDED_OVER))
        if terms.duplicate_answer is not DuplicateAnswer.ORIGINAL:
            return
        if sum(row.kind == RECEIVED for row in rows) > 1:
            # The terms do not stop repeats: each copy is a message of its own (C40).
            return
        responses = [content for content in replies if b"Answer" in content]
        if len(responses) > 1:
            sentence = "Two copies of the request got two different responses."
            self.ledger.broke("another answer", sentence, node, message_id)

    # --- acknowledgements ---

    def _heard(self) -> None:
        """The To Party's own acknowledgement counts, whatever became of the agreement since: a
        message keeps the terms that it was accepted under."""
        # A hub's own acknowledgement is of the hop, also where it found no way on since; it is
        # no receipt, and where a signed one was asked for it is rightly not taken for one.
        hubs = self.world.plan.setting.way
        given = {
            (message_id, row.ref_to)
            for (node, message_id), rows in self.traces.items()
            if node not in hubs
            for row in rows
            if row.kind == ACK_SENT
        }
        for (node, message_id), rows in self.traces.items():
            for row in rows:
                if row.kind != IGNORED or (message_id, row.ref_to) not in given:
                    continue
                said = notes.Ignored.read(row.detail)
                if said.claim == "acknowledgement":
                    sentence = f"The To Party's own acknowledgement was ignored: {said.problem}."
                    self.ledger.broke("deaf", sentence, node, message_id)
                    break

    # --- warnings ---

    def _warnings(self) -> None:
        """A difference between header and agreement that is only warned of is warned of."""
        if not self.world.plan.setting.calm:
            return
        for order in self.world.plan.orders:
            if not order.best_effort or order.message_id not in self.confirmed:
                continue
            if self._owed_a_warning(order) and not any(
                receiver == order.sender and order.message_id.encode() in body
                for _, receiver, body in self.ledger.reports
            ):
                sentence = "Header and agreement differ, and its sender was not warned."
                self.ledger.broke("unwarned", sentence, order.receiver, order.message_id)

    def _owed_a_warning(self, order: Order) -> bool:
        sender, receiver = (self.world.machine(name) for name in (order.sender, order.receiver))
        with sender.store.reader() as reader:
            parcel = reader.outgoing_parcel(order.message_id)
        if parcel is None:
            return False
        message = codec.read(whole_parcel(sender.engine.context, parcel)).message
        agreements = receiver.engine.context.agreements
        try:
            found = resolve(
                agreements, message, receiving=True, now=self.world.clock.now, transport=None
            )
        except OncewireError:
            return False
        return bool(found.warnings)

    def _terms_of(self, row: Row) -> Terms:
        return self.terms[row.terms_id or ""]
