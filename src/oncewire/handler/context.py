"""HandlerContext: what every verb of the handler works with, the state of this process, and how
the journal is written."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.toml import read_toml, write_whole
from oncewire.errors import StoreDamaged, StoreFull, StoreGone
from oncewire.handler.actions import Action, Post
from oncewire.handler.contacts import Contacts
from oncewire.handler.spool_reading import Proofs, ReadingRoom
from oncewire.handler.world import Timeline, World
from oncewire.journal.row import Row
from oncewire.message.envelope import Message
from oncewire.message.instant import HOUR, MINUTE, SECOND, Duration, Instant
from oncewire.protocol.notes import ACTS, Kind, Note, write_terms
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader, Store, Transaction
from oncewire.store.records import Refusal, StoredIncoming
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.security.algorithms import SigningKey
from oncewire.wire.templates.envelope import Templates

logger = logging.getLogger("oncewire.handler")

# Refusals: what strangers send and no agreement takes is counted, and a sample of it kept.
#
# One row of the journal for each would let strangers fill the disk. So a sender without agreement
# gets no row at all; who does name one, and proves nothing, gets a few, for an operator to see
# what his partner's handler complains of. All of them are counted in one small table. The counts
# of the last moments are in memory, and a crash may lose these: nothing else depends on them.

KEPT_MAX = 256
"""Kinds of refusal that are told apart between two writes."""

WRITE_EVERY: Duration = 5 * SECOND

JOURNALED_MAX = 100
"""Refusals that are journaled one by one before there is a pause ..."""
JOURNALED_EVERY: Duration = 6 * SECOND
"""... and after which time there may be one more."""

_TEXT_MAX = 300


class Refusals:
    """What was refused since the last write."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], Refusal] = {}
        # When the counts are to be written; None: there are none.
        self.due_at: Instant | None = None
        # How many there were since this process began.
        self.total = 0
        # What the commit of this turn writes.
        self._written: dict[tuple[str, str], Refusal] = {}
        # Until when the rows of the journal are spoken for.
        self._journaled_until: Instant = 0

    @property
    def counted(self) -> tuple[Refusal, ...]:
        """What is not written yet."""
        return tuple(self._counted.values())

    def count(
        self, code: str, address: str, problem: str, message_id: str | None, now: Instant
    ) -> None:
        """Count one."""
        self.total += 1
        key = (code, address)
        if key not in self._counted and len(self._counted) >= KEPT_MAX:
            key = (code, "")
        before = self._counted.get(key)
        first, count = (now, 0) if before is None else (before.first_at, before.count)
        self._counted[key] = Refusal(
            *key, count + 1, first, now, problem[:_TEXT_MAX], message_id and message_id[:_TEXT_MAX]
        )
        if self.due_at is None:
            self.due_at = now + WRITE_EVERY

    def may_journal(self, now: Instant) -> bool:
        """Whether one more of them may have a row of the journal."""
        begin = max(self._journaled_until, now - JOURNALED_MAX * JOURNALED_EVERY)
        if begin + JOURNALED_EVERY > now:
            return False
        self._journaled_until = begin + JOURNALED_EVERY
        return True

    def write(self, tx: Transaction, now: Instant) -> None:
        """Put the counts into the table, with the commit of this turn."""
        # Should the store refuse them, they are tried again, and not at once.
        self.due_at = now + WRITE_EVERY
        tx.count_refusals(tuple(self._counted.values()))
        self._written = _sums(self._written, self._counted)
        self._counted = {}

    def keep(self) -> None:
        """The turn is committed: begin anew."""
        if self._written and not self._counted:
            self.due_at = None
        self._written = {}

    def undo(self) -> None:
        """The commit has failed."""
        self._counted, self._written = _sums(self._written, self._counted), {}

    def shift(self, by: Duration) -> None:
        """The clock was set."""
        self._journaled_until += by
        if self.due_at is not None:
            self.due_at += by
        self._counted = {
            key: replace(refusal, first_at=refusal.first_at + by, last_at=refusal.last_at + by)
            for key, refusal in self._counted.items()
        }


def _sums(
    earlier: dict[tuple[str, str], Refusal], later: dict[tuple[str, str], Refusal]
) -> dict[tuple[str, str], Refusal]:
    both = {key: earlier[key] + later[key] for key in earlier.keys() & later.keys()}
    return earlier | later | both


# ProcessState and Caches: what a handler holds in memory beside its store.
#
# Each field says whether another process of the same party, working on the same database, needs it.
# "Own" means that each process has its own. "Claimed" means that the commit writes it down for the
# others, who leave it alone (`runtime.beside`).

IN_FLIGHT_MAX = 256
"""Transmissions under way at once; the rest wait their turn without a timer running."""

NEVER: Instant = 2**62
"""Later than anything that is due."""

KEYS_MAX = 4096
"""Names that a Tally counts apart; beyond that they are counted together."""

FORGOTTEN_AFTER: Duration = HOUR
"""A name that was not counted for so long makes room for another."""

LOOKED_THROUGH_EACH: Duration = MINUTE
"""How often at most a full Tally looks for names to forget, since that reads all of them."""


class Tally:
    """Counts by name, within a bound, of what anybody can make happen."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, Instant]] = {}
        self._forgotten_at: Instant = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, name: str, now: Instant) -> int:
        """Count one more of that name; returns how many there are."""
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            if not self._forgotten_at or now - self._forgotten_at >= LOOKED_THROUGH_EACH:
                self._forgotten_at = now
                self._counts = {
                    known: (counted, at)
                    for known, (counted, at) in self._counts.items()
                    if now - at < FORGOTTEN_AFTER
                }
            if len(self._counts) >= KEYS_MAX:
                name = ""
        counted = self._counts.get(name, (0, now))[0] + 1
        self._counts[name] = counted, now
        return counted


def is_told(count: int) -> bool:
    """Whether this one is written down: the first, the second, the fourth, ..."""
    return count & (count - 1) == 0


@dataclass(slots=True)
class Trial:
    """A message of ours that tries an agreement out, while it is under way."""

    # How many of its acknowledgements are treated as lost.
    lose: int = 0
    # MessageIds of the acknowledgements that came, in order, the lost ones too.
    heard: list[str] = field(default_factory=list)

    def overlooks(self, message: Message) -> bool:
        """Note an answer; whether it is treated as lost."""
        self.heard.append(message.header.message_id)
        lost = self.lose > 0
        self.lose -= lost
        return lost


@dataclass(slots=True)
class ProcessState:
    """What only this process knows: gone with it, and found again from the store at a start."""

    # Own: the time this process lives by.
    timeline: Timeline
    # Own: which spool files this process has read and found whole.
    proofs: Proofs
    # Own: the instant of the open transition, on both clocks.
    moment: tuple[Instant, Duration] | None = None
    # Own: who asked for the open transition, where that is known.
    by: str | None = None

    # --- collected by transitions, given out by the commit ---

    # Own: what leaves after the commit.
    actions: list[Action] = field(default_factory=list)
    # Own: messages whose receiver is asked for their status (C37).
    status_questions: list[str] = field(default_factory=list)
    # Own: failed messages whose From Parties are told in the commit.
    failed: list[str] = field(default_factory=list)
    # Own: ended parts of documents of ours, followed up in the commit.
    parts_ended: list[str] = field(default_factory=list)
    # Own: channels that may have a place for a waiting message, in the order they were named.
    admissions: dict[str, None] = field(default_factory=dict)
    # Own: documents without a window that may have room for another part.
    releasing: dict[str, None] = field(default_factory=dict)
    # Own: acknowledgments that waited for a response and leave with this commit.
    acks_leaving: list[tuple[Instant, str, str]] = field(default_factory=list)
    # Own: messages whose trouble began or ended in this turn.
    trouble_changed: list[str] = field(default_factory=list)
    # Own: spool files written in this turn.
    spooled: list[str] = field(default_factory=list)
    # Own: partners without an address for an answer, and what the answer was.
    unaddressed: dict[str, str] = field(default_factory=dict)

    # --- messages under way ---

    # Claimed: messages whose transmission is under way; two processes must not send one at once.
    in_flight: set[str] = field(default_factory=set)
    # Claimed: messages that a reliable transport is trusted with.
    delegated: set[str] = field(default_factory=set)
    # Claimed: received messages, by sender and MessageId, whose answer is leaving.
    answering: set[tuple[str, str]] = field(default_factory=set)
    # Claimed: received messages that the application is called with, and those since the last
    # commit.
    offering: set[tuple[str, str]] = field(default_factory=set)
    offered: list[tuple[str, str]] = field(default_factory=list)
    # Claimed: notices that the application is being told.
    telling: set[str] = field(default_factory=set)
    # Own: messages with an incident, and when each is looked at again; 0: it may go on now.
    troubled: dict[str, Instant] = field(default_factory=dict)
    # Own: messages whose timer cannot be set, passed over until the next start.
    stuck: set[str] = field(default_factory=set)
    # Own: messages that a reliable transport was asked about again after a restart.
    taken_up: set[str] = field(default_factory=set)
    # Own: receiver labels and transports that messages have left, until a probe gets through.
    left: set[tuple[str, str]] = field(default_factory=set)
    # Own: channels on which a part of a document entered last; a whole message goes next.
    part_went: set[str] = field(default_factory=set)
    # Own: streams of hops that are known to be later than those of the other scope, while what
    # told so stands and the agreements do.
    numbered: set[str] = field(default_factory=set)
    # Claimed: documents that are being joined, with their channel and their place in its order.
    joining: dict[tuple[str, str], tuple[str | None, int]] = field(default_factory=dict)
    # Own: documents compressed in a thread, until their turn, by `compressed_key`.
    compressed: dict[tuple[object, ...], list[Any]] = field(default_factory=dict)

    # --- who waits here ---

    # Claimed: requests, by sender and MessageId, whose connection waits for their response.
    replying: Collection[tuple[str, str]] = ()
    # Own: the same at a hub, whose next hop gives the reply.
    relaying: Collection[tuple[str, str]] = ()
    # Own: acknowledgments that wait for a response to ride on, the earliest due first.
    acks_waiting: list[tuple[Instant, str, str]] = field(default_factory=list)
    # Claimed: MessageIds of unanswered Pings; the Pong may reach another process.
    pings: set[str] = field(default_factory=set)
    # Claimed: status questions about messages unknown here, by CPAId and MessageId.
    asked: set[tuple[str, str]] = field(default_factory=set)
    # Own: trials that a caller waits for, by their MessageId.
    trials: dict[str, Trial] = field(default_factory=dict)

    # --- timers ---

    # Own: when held messages are looked at next.
    gaps_due_at: Instant = 0
    # Own: when it is looked next whether another handler is over.
    fellows_due_at: Instant = NEVER
    # Own: when retention removes messages, and then their files.
    sweep_due_at: Instant = NEVER
    clean_due_at: Instant = NEVER
    # Own: the row after which answers of an earlier run are still to be posted.
    repost_after: int | None = None
    # Own: whether some of them are posted with this commit.
    reposted: bool = False
    # Own: when the timers were served last.
    ticked_at: Instant = 0

    # --- partners ---

    # Own: whether each partner answers, as far as the attempts of this process tell.
    contacts: Contacts = field(default_factory=Contacts)

    # --- strangers ---

    # Own: ignored signals, by the message they are about.
    ignored: Tally = field(default_factory=Tally)
    # Own: refused messages that are counted and not yet written down.
    refusals: Refusals = field(default_factory=Refusals)
    # Own: the threads that read large bodies.
    reading_room: ReadingRoom = field(default_factory=ReadingRoom)

    def shift(self, by: Duration) -> None:
        """Move every timer with the clock, so that no wait becomes longer or shorter."""
        self.gaps_due_at += by
        self.fellows_due_at += by
        self.sweep_due_at += by
        self.clean_due_at += by
        self.ticked_at += by
        self.refusals.shift(by)
        self.contacts.shift(by)
        self.acks_waiting = [
            (due + by, sender, message_id) for due, sender, message_id in self.acks_waiting
        ]
        self.troubled = {subject: until and until + by for subject, until in self.troubled.items()}


@dataclass(slots=True)
class Caches:
    """What can be computed again. Own: every process fills its own."""

    # Agreements as they are stored, by `id(agreement)`; the agreement is kept alive with it.
    written: dict[int, tuple[Agreement, str, str]] = field(default_factory=dict)
    # Agreements that stored messages were accepted under, by their id in the store.
    kept: dict[str, Agreement] = field(default_factory=dict)
    # MessageIds made ahead of the messages they are for.
    fresh_ids: deque[str] = field(default_factory=deque)
    # Templates of headers and signatures. ONCEWIRE_TEMPLATES=off turns them off, for tests: they
    # change how long a message takes and nothing else.
    templates: Templates = field(
        default_factory=lambda: Templates(enabled=os.environ.get("ONCEWIRE_TEMPLATES") != "off")
    )


# Keys: what this handler signs and decrypts with. They arrive here and are never logged.


@dataclass(frozen=True, slots=True)
class Keys:
    """A private key and the certificate partners know it by."""

    certificate: x509.Certificate
    signing_key: SigningKey = field(repr=False)


# Named points at which a test may kill the process, to see what a crash there leaves.
#
# A test names a point and a count; when the point is reached for that time, the process leaves a
# mark and dies as by `kill -9`. In production no point is named and `reach` does nothing.


POINTS = (
    # Every handler: taking up what the last run left, an operator's word, a graceful end.
    "start before commit",
    "start after commit",
    "operate before commit",
    "operate after commit",
    "stop before commit",
    "stop after commit",
    # The sender: a submission, an attempt, and the answer that settles it.
    "submit before commit",
    "submit after commit",
    "post before send",
    "post after send",
    "outcome before commit",
    "outcome after commit",
    "tick before commit",
    "tick after commit",
    # The receiver: an arrival, its answer, and the hand-over to the application.
    "read before body",
    "read after body",
    "spool before fsync",
    "spool after fsync",
    "receive before commit",
    "receive after commit",
    "join before work",
    "join after work",
    "join before commit",
    "join after commit",
    "answer before send",
    "answer after send",
    "answer left before commit",
    "answer left after commit",
    "take before commit",
    "take after commit",
    "confirm before commit",
    "confirm after commit",
)
"""Before and after each durable step and each departure of bytes."""


class KillPoints:
    """Where this process is to die; by default nowhere."""

    def __init__(self, point: str = "", count: int = 1, mark: str = "") -> None:
        if point and point not in POINTS:
            raise ValueError(f"there is no kill point {point!r}")
        self._point, self._count, self._mark = point, count, mark
        self._reached: Counter[str] = Counter()
        # Whether a point is named at all; if not, the caller need not reach any.
        self.armed = bool(point)

    @classmethod
    def from_environment(cls) -> KillPoints:
        """ONCEWIRE_KILL_AT="point:count" and ONCEWIRE_KILL_MARK=file; for tests only."""
        point, _, count = os.environ.get("ONCEWIRE_KILL_AT", "").partition(":")
        return cls(point, int(count or 1), os.environ.get("ONCEWIRE_KILL_MARK", ""))

    def reach(self, point: str) -> None:
        """Say that a point is reached; does not return if this was the time to die."""
        if point != self._point:
            return
        self._reached[point] += 1
        if self._reached[point] == self._count:
            if self._mark:
                Path(self._mark).write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)


NOWHERE = KillPoints()
"""No kill point: in production."""


BODY_MAX = 16 * 1024**3
"""The largest body taken unless the configuration says otherwise."""


def _agreement_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class HandlerContext:
    """What every verb works with, and does not change: store, agreements, keys, limits, world.

    Another process of the same party on the same database needs the same `name`, `store`,
    `agreements`, `keys`, `limits` and `body_max`; `boot` and everything after it are its own.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        agreements: Agreements,
        world: World,
        *,
        keys: Keys | None = None,
        limits: Limits = DEFAULT_LIMITS,
        body_max: int = BODY_MAX,
        at_rest: bool = False,
    ) -> None:
        self.name = name
        self.store = store
        # Replaced when the party's folder is read again.
        self.agreements = agreements
        self.keys = keys
        self.world = world
        machine = world.machine()
        self.boot = f"{machine}.{world.new_id()}" if machine else world.new_id()
        self.limits = limits
        self.body_max = body_max
        # Nothing can be sent from here: what is submitted is due when a handler runs.
        self.at_rest = at_rest
        # The application is called, so a connection can wait for its response.
        self.application_called = False
        # Where a test wants this process to die; nowhere, unless its handler says so.
        self.kill = NOWHERE
        self.state = ProcessState(Timeline(world), Proofs(store.spool))
        self.caches = Caches()

    @property
    def room(self) -> int:
        """How many more attempts may begin now. One that had to wait for its turn after it was
        begun would be sent again as soon as it was sent."""
        fellows = self.store.fellows
        if self.at_rest or (fellows is not None and fellows.draining):
            return 0
        return max(0, IN_FLIGHT_MAX - len(self.state.in_flight))

    @property
    def drains(self) -> bool:
        """Whether this handler takes no new work, because another one does."""
        return self.store.fellows is not None and self.store.fellows.draining

    def elsewhere(self, kind: str) -> Collection[tuple[str, str]]:
        """What other handlers of the same store claim of a kind (`runtime.beside`)."""
        return () if self.store.fellows is None else self.store.fellows.elsewhere(kind)

    @contextmanager
    def transition(self, by: str | None = None) -> Iterator[Transaction]:
        """A transition of the store that happens at one instant; its rows say who asked for it
        (`by`), where that is known.

        Its timers and its journal rows must tell the same time: a row that is stamped later
        than the timer it explains was set makes the next attempt look too early.
        """
        state = self.state
        state.moment, state.by = state.timeline.read(self.world), by
        kept, questions = len(state.actions), len(state.status_questions)
        try:
            with self.store.transition() as tx:
                yield tx
        except BaseException:
            # What it decided did not happen, so nothing of it may leave.
            for action in state.actions[kept:]:
                if isinstance(action, Post):
                    state.in_flight.discard(action.message_id)
            del state.actions[kept:], state.status_questions[questions:]
            state.numbered.clear()
            raise
        finally:
            state.moment = state.by = None

    def isolated_step(self, step: Callable[[Transaction], None]) -> Exception | None:
        """Run a step in a transition of its own. Its trouble, unless it is the store's, is
        handed back and undoes nothing else."""
        try:
            with self.transition() as tx:
                step(tx)
        except (StoreFull, StoreGone, MemoryError):
            raise
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this step's alone
            return problem
        return None

    def logged_step(self, step: Callable[[Transaction], None], trouble: str) -> None:
        """Run an isolated step whose trouble nobody but the log has to be told of: it is done
        again, or asked for again by the partner."""
        problem = self.isolated_step(step)
        if problem is not None:
            logger.error(trouble, exc_info=problem)

    def now(self) -> Instant:
        """UTC now, as far as it can be believed."""
        return (self.state.moment or self.state.timeline.read(self.world))[0]

    @property
    def in_doubt(self) -> bool:
        """Whether nothing may be declared expired: it is not known what time it is."""
        return self.state.timeline.in_doubt

    def follow_clock(self, tx: Transaction) -> Duration:
        """Take the machine's clock for the time from here on; returns by how much that moved it.

        What is waited for moves with it, so that no wait becomes longer or shorter. Deadlines are
        instants of UTC and stay where they are (DRV-8).
        """
        # Of several handlers one moves what all of them wait for.
        if self.store.fellows is None or self.store.fellows.leads:
            tx.shift_timers(self.state.timeline.ahead)
        by = self.state.timeline.follow()
        self.state.shift(by)
        self.state.moment = self.state.timeline.read(self.world)
        return by

    def new_message_id(self) -> str:
        """A MessageId that was never used before."""
        return f"{self.world.new_id()}@{self.name}"

    def fresh_message_ids(self, count: int) -> Collection[str]:
        """MessageIds made ahead, so that the store is asked about all of them at once."""
        while len(self.caches.fresh_ids) < count:
            self.caches.fresh_ids.append(self.new_message_id())
        return self.caches.fresh_ids

    def fresh_message_id(self) -> str:
        """One for a message that is stored; one that was made ahead, if there is one."""
        return self.caches.fresh_ids.popleft() if self.caches.fresh_ids else self.new_message_id()

    def is_ours(self, keeper: Transaction | Reader, stored: StoredIncoming) -> bool:
        """Whether a stored message is for a party of ours: by an agreement of today, or by the
        one it was accepted under, which may be gone."""
        to_party = stored.facts.to_party
        if any(to_party in map(str, agreement.own.party.ids) for agreement in self.agreements):
            return True
        kept = self.agreement_kept(keeper, stored.agreement_id)
        return kept is not None and to_party in map(str, kept.own.party.ids)

    def write(
        self,
        tx: Transaction,
        notes: Iterable[Note],
        *,
        terms_id: str | None = None,
        hop: int | None = None,
        peer: str | None = None,
        digest: str | None = None,
        size: int | None = None,
    ) -> None:
        """Journal notes of the protocol; the keywords fill columns it does not know."""
        at, mono = self.state.moment or self.state.timeline.read(self.world)
        by, rows = self.state.by, []
        for note in notes:
            what = note.what
            if by is not None and isinstance(what, ACTS) and what.by is None:
                # By whose word it happened.
                what = replace(what, by=by)
            rows.append(
                Row(
                    0,
                    at,
                    mono,
                    self.boot,
                    self.name,
                    what.KIND._value_,
                    note.message_id,
                    note.ref_to,
                    terms_id,
                    note.channel,
                    note.epoch,
                    note.number,
                    note.attempt,
                    hop,
                    peer,
                    note.transport,
                    digest,
                    size,
                    what.write(),
                )
            )
        tx.journal(rows)

    def keep_terms(self, tx: Transaction, terms: Terms) -> str:
        """Keep terms and journal them once, so that rows can refer to them by id."""
        terms_id = terms.terms_id
        if tx.remember_terms(terms):
            at, mono = self.state.moment or self.state.timeline.read(self.world)
            row = Row(0, at, mono, self.boot, self.name, Kind.TERMS.value, terms_id=terms_id)
            tx.journal([row._replace(detail=write_terms(terms))])
        return terms_id

    def keep_agreement(self, tx: Transaction, agreement: Agreement) -> str:
        """Keep the agreement that a message is accepted under, as it is today."""
        written = self.caches.written.get(id(agreement))
        if written is None:
            text = write_whole(agreement)
            agreement_id = _agreement_id(text)
            # The agreement stays with it: an id is only good for what is alive.
            written = self.caches.written[id(agreement)] = (agreement, agreement_id, text)
            self.caches.kept.setdefault(agreement_id, agreement)
            if tx.agreement(agreement_id) not in (None, text):
                tx.mend_agreement(agreement_id, text)
        _, agreement_id, text = written
        tx.remember_agreement(agreement_id, text)
        return agreement_id

    def agreement_kept(
        self, keeper: Transaction | Reader, agreement_id: str | None
    ) -> Agreement | None:
        """The agreement a stored message was accepted under, whatever became of its file;
        None for a message of a version that did not keep them."""
        if agreement_id is None:
            return None
        kept = self.caches.kept.get(agreement_id)
        if kept is None:
            text = keeper.agreement(agreement_id)
            if text is None:
                raise StoreDamaged(
                    f"the agreement {agreement_id} of a stored message is missing",
                    remedy="restore the store from a backup; its agreements are incomplete",
                )
            if _agreement_id(text) == agreement_id:
                kept = self.caches.kept[agreement_id] = read_toml(text)
                self.caches.written[id(kept)] = (kept, agreement_id, text)
            else:
                kept = self._still_agreed(agreement_id)
        return kept

    def _still_agreed(self, agreement_id: str) -> Agreement:
        """What is kept under that id says something else now. It is the digest of what it said:
        if that is agreed today still, nothing is lost."""
        for agreement in self.agreements:
            text = write_whole(agreement)
            if _agreement_id(text) == agreement_id:
                self.caches.kept[agreement_id] = agreement
                return agreement
        raise StoreDamaged(
            f"the stored agreement {agreement_id} is damaged",
            remedy="put its row back from a backup; messages under it can be given up with "
            "`oncewire abandon`",
        )

    def agreement_accepted(self, stored: StoredIncoming) -> Agreement | None:
        """`agreement_kept` for a message that is read outside of any transition."""
        if stored.agreement_id is None or stored.agreement_id in self.caches.kept:
            return self.caches.kept.get(stored.agreement_id or "")
        with self.store.reader() as reader:
            return self.agreement_kept(reader, stored.agreement_id)

    def terms_of(self, tx: Transaction, terms_id: str) -> Terms:
        """Terms that a stored message runs under, whatever the agreement says today."""
        terms = tx.terms(terms_id)
        if terms is None:
            raise StoreDamaged(
                f"the terms {terms_id} of a stored message are missing",
                remedy="restore the store from a backup; its terms table is incomplete",
            )
        return terms
