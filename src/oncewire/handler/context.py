"""HandlerContext: what every verb of the handler works with, and how it writes the journal."""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.toml.reader import read_toml
from oncewire.agreement.toml.writer import write_whole
from oncewire.errors import StoreDamaged, StoreFull, StoreGone
from oncewire.handler.actions import Action, Post
from oncewire.handler.refusals import Refusals
from oncewire.handler.spool_reading import Proofs, ReadingRoom
from oncewire.handler.world import Timeline, World
from oncewire.journal.row import Row
from oncewire.message.envelope import Message
from oncewire.message.instant import HOUR, MINUTE, Duration, Instant, seconds
from oncewire.protocol.effects import Note
from oncewire.protocol.notes import Kind, write_terms
from oncewire.protocol.terms import OnExhausted, Terms
from oncewire.store.contract import Reader, Store, Transaction
from oncewire.store.records import StoredIncoming
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.security.algorithms import SigningKey
from oncewire.wire.templates.signature import Templates

# Keys: what this handler signs and decrypts with. They arrive here and are never logged.


@dataclass(frozen=True, slots=True)
class Keys:
    """A private key and the certificate partners know it by."""

    certificate: x509.Certificate
    signing_key: SigningKey = field(repr=False)


# Named points at which a test may kill the process, to see what a crash there leaves.
#
# In production nobody is set to be killed and `reach` does nothing. A test names a point and a
# count; when the point is reached for that time, the process leaves a mark and dies as by `kill
# -9`: no clean-up, no flush, no goodbye.


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
        # Whether there is one at all: in production nobody need name the points.
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
"""Of those whom no test kills."""


# Tally: how often things happened that anybody can make happen, within a bound.


KEYS_MAX = 4096
"""Things counted apart; beyond that they are counted together."""

FORGOTTEN_AFTER: Duration = HOUR
"""What has not happened for so long makes room for something else."""

LOOKED_THROUGH_EACH: Duration = MINUTE
"""How often at most: whoever fills the table must not make every call look through it."""


class Tally:
    """Counts by name. Whoever writes a line for every power of two writes few lines, however
    often somebody makes a thing happen."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, Instant]] = {}
        self._forgotten_at: Instant = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, name: str, now: Instant) -> int:
        """One more; how many there are of that name now."""
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            self._forget(now)
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            name = ""
        counted = self._counts.get(name, (0, now))[0] + 1
        self._counts[name] = counted, now
        return counted

    def _forget(self, now: Instant) -> None:
        if self._forgotten_at and now - self._forgotten_at < LOOKED_THROUGH_EACH:
            return
        self._forgotten_at = now
        kept = self._counts.items()
        self._counts = {
            name: (counted, at) for name, (counted, at) in kept if now - at < FORGOTTEN_AFTER
        }


def is_told(count: int) -> bool:
    """Whether this one is told of: the first, the second, the fourth, ..."""
    return count & (count - 1) == 0


# Trial: what a handler notes of a message of its own that only tries an agreement out.


TRIAL_PAUSE = seconds(3)
"""Between two attempts of a trial: somebody waits for it."""


@dataclass(slots=True)
class Trial:
    """One trial under way; what is noted of it is gone with the process."""

    # How many of its acknowledgements are to be taken for lost.
    lose: int = 0
    # MessageIds of the acknowledgements that came, in order, those that were lost too.
    heard: list[str] = field(default_factory=list)

    def overlooks(self, message: Message) -> bool:
        """Note an answer; whether it is to be taken for lost."""
        self.heard.append(message.header.message_id)
        lost = self.lose > 0
        self.lose -= lost
        return lost


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried with a partner, and how it went.

    `what`: what was tried.
    `works`: whether it works; None: it could not be tried.
    `finding`: in words.
    """

    what: str
    works: bool | None
    finding: str


def trial_terms(terms: Terms) -> Terms:
    """The terms of a trial: repeated within seconds, and given up by itself."""
    hasty = replace(
        terms,
        timeout=TRIAL_PAUSE,
        retry_interval=TRIAL_PAUSE,
        retries=4,
        on_exhausted=OnExhausted.FAIL_MESSAGE,
    )
    return hasty if hasty.longest_retry < terms.persist_duration else terms


BODY_MAX = 16 * 1024**3
"""The largest body taken unless the configuration says otherwise."""


IN_FLIGHT_MAX = 256
"""Transmissions under way at once; the rest wait their turn without a timer running."""

NEVER: Instant = 2**62
"""Later than anything that is due."""


def _agreement_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class HandlerContext:
    """One handler's tools: its store, its agreements, its world, and its released actions."""

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
        self.agreements = agreements
        self.world = world
        machine = world.machine()
        self.boot = f"{machine}.{world.new_id()}" if machine else world.new_id()
        self.keys = keys
        self.limits = limits
        self.body_max = body_max
        # Nothing can be sent from here: what is submitted is due when a handler runs.
        self.at_rest = at_rest
        # It is called, so a connection can wait for what it says; one that comes may come late.
        self.application_called = False
        # Requests, by sender and MessageId, whose connection waits for their response now.
        self.replying: Collection[tuple[str, str]] = ()
        # The same at a hub, whose next hop gives the reply.
        self.relaying: Collection[tuple[str, str]] = ()
        # A digest of thirty values is not made anew for every message.
        self._terms_ids: dict[Terms, str] = {}
        # Nor is an agreement written down for every message, or read again.
        self._written: dict[int, tuple[Agreement, str, str]] = {}
        self._kept: dict[str, Agreement] = {}
        # Collected by transitions, given out by the commit.
        self.actions: list[Action] = []
        # Messages whose fate is to be asked of their receiver (C37).
        self.status_questions: list[str] = []
        # Messages that failed, whose From Parties are to be told with the next commit.
        self.failed: list[str] = []
        # Acknowledgements that wait for a response to ride on, the earliest due first.
        self.acks_waiting: list[tuple[Instant, str, str]] = []
        # When held messages are looked at next.
        self.gaps_due_at: Instant = 0
        # When messages that nobody needs any more are looked for, and then their files.
        self.sweep_due_at: Instant = NEVER
        self.clean_due_at: Instant = NEVER
        # The row after which answers of an earlier run are still to be posted.
        self.repost_after: int | None = None
        # Files that were put into the spool by transitions that are not committed yet.
        self.spooled: list[str] = []
        # Pings that left and were not answered yet, by their MessageId.
        self.pings: set[str] = set()
        # Messages that a transport answers for and was asked about again after a restart.
        self.taken_up: set[str] = set()
        # Messages whose transmission is under way in this process.
        self.in_flight: set[str] = set()
        # Where a test wants this process to die; nowhere, unless its handler says so.
        self.kill = KillPoints()
        # Channels that may have a place for a message that waits, in the order they were named.
        self.admissions: dict[str, None] = {}
        # Messages that have an incident, and when each is looked at again; 0: it may go on now.
        self.troubled: dict[str, Instant] = {}
        # Those whose trouble ended since the last commit.
        self.relieved: list[str] = []
        # Those of them that not even a timer could be set for.
        self.stuck: set[str] = set()
        # When the timers were served last.
        self.ticked_at: Instant = 0
        self.timeline = Timeline(world)
        # The instant of the transition that is open, on both clocks.
        self._moment: tuple[Instant, Duration] | None = None

    @cached_property
    def asked(self) -> set[tuple[str, str]]:
        """Messages unknown here that a partner was asked for, by its CPAId and their MessageId."""
        return set()

    @cached_property
    def part_went(self) -> set[str]:
        """Channels on which a part of a document was the last to enter: what is whole goes next."""
        return set()

    @cached_property
    def releasing(self) -> dict[str, None]:
        """Documents that no window holds back, and that may have room for another part."""
        return {}

    @cached_property
    def parts_ended(self) -> list[str]:
        """Parts of documents of ours that ended; what that means is decided before the commit."""
        return []

    @cached_property
    def compressed(self) -> dict[tuple[object, ...], list[Any]]:
        """Documents that were compressed in a thread and wait for the turn that takes them, by
        `documents.splitting.compressed_key`."""
        return {}

    @cached_property
    def joining(self) -> dict[tuple[str, str], tuple[str | None, int]]:
        """Documents that are put together now: their channel and their place in its order."""
        return {}

    @cached_property
    def ignored(self) -> Tally:
        """Signals that changed nothing, by the message they are about."""
        return Tally()

    @cached_property
    def left(self) -> set[tuple[str, str]]:
        """Transports that messages have left, with the receiver's label before each, until a
        probe gets through."""
        return set()

    @cached_property
    def trials(self) -> dict[str, Trial]:
        """Trials of ours that somebody waits for, by their MessageId."""
        return {}

    @cached_property
    def _fresh(self) -> deque[str]:
        """MessageIds made ahead."""
        return deque()

    @cached_property
    def unaddressed(self) -> dict[str, str]:
        """Partners to whom something could not be said for want of an address, and what it was,
        until the operator is called."""
        return {}

    @cached_property
    def refusals(self) -> Refusals:
        """What strangers sent and nobody took, until it is written down."""
        return Refusals()

    @cached_property
    def reading_room(self) -> ReadingRoom:
        """Where bodies are read that would keep the others waiting."""
        return ReadingRoom()

    @cached_property
    def proofs(self) -> Proofs:
        """Which files of the spool are still what they were."""
        return Proofs(self.store.spool)

    @cached_property
    def templates(self) -> Templates:
        """The templates of headers and signatures. ONCEWIRE_TEMPLATES=off turns them off, for
        tests: they change how long a message takes and nothing else."""
        return Templates(enabled=os.environ.get("ONCEWIRE_TEMPLATES") != "off")

    @property
    def room(self) -> int:
        """How many more attempts may begin now. One that had to wait for its turn after it was
        begun would be sent again as soon as it was sent."""
        return 0 if self.at_rest else max(0, IN_FLIGHT_MAX - len(self.in_flight))

    @contextmanager
    def transition(self) -> Iterator[Transaction]:
        """A transition of the store that happens at one instant.

        Its timers and its journal rows must tell the same time: a row that is stamped later
        than the timer it explains was set makes the next attempt look too early.
        """
        self._moment = self._read_clocks()
        kept, questions = len(self.actions), len(self.status_questions)
        try:
            with self.store.transition() as tx:
                yield tx
        except BaseException:
            # What it decided did not happen, so nothing of it may leave.
            for action in self.actions[kept:]:
                if isinstance(action, Post):
                    self.in_flight.discard(action.message_id)
            del self.actions[kept:], self.status_questions[questions:]
            raise
        finally:
            self._moment = None

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

    def now(self) -> Instant:
        """UTC now, as far as it can be believed."""
        return (self._moment or self._read_clocks())[0]

    @property
    def in_doubt(self) -> bool:
        """Whether nothing may be declared expired: it is not known what time it is."""
        return self.timeline.in_doubt

    def follow_clock(self, tx: Transaction) -> Duration:
        """Take the machine's clock for the time from here on; returns by how much that moved it.

        What is waited for moves with it, so that no wait becomes longer or shorter. Deadlines are
        instants of UTC and stay where they are (DRV-8).
        """
        tx.shift_timers(self.timeline.ahead)
        by = self.timeline.follow()
        self.gaps_due_at += by
        self.sweep_due_at += by
        self.clean_due_at += by
        self.ticked_at += by
        self.refusals.shift(by)
        self.acks_waiting = [
            (due + by, sender, message_id) for due, sender, message_id in self.acks_waiting
        ]
        self.troubled = {subject: until and until + by for subject, until in self.troubled.items()}
        self._moment = self._read_clocks()
        return by

    def _read_clocks(self) -> tuple[Instant, Duration]:
        """UTC and monotonic time of one instant."""
        return self.timeline.read(self.world)

    def new_message_id(self) -> str:
        """A MessageId nobody has used before."""
        return f"{self.world.new_id()}@{self.name}"

    def fresh_message_ids(self, count: int) -> Collection[str]:
        """So many of them, made ahead: the store is asked about all of them at once."""
        while len(self._fresh) < count:
            self._fresh.append(self.new_message_id())
        return self._fresh

    def fresh_message_id(self) -> str:
        """One for a message that is stored; one that was made ahead, if there is one."""
        return self._fresh.popleft() if self._fresh else self.new_message_id()

    def acts_for(self, party: str) -> bool:
        """Whether a party, by the name listings use, is ours under any agreement."""
        return any(
            party == str(party_id)
            for agreement in self.agreements
            for party_id in agreement.own.party.ids
        )

    def is_ours(self, keeper: Transaction | Reader, stored: StoredIncoming) -> bool:
        """Whether a stored message is for a party of ours: by an agreement of today, or by the
        one it was accepted under, which may be gone."""
        to_party = stored.facts.to_party
        if self.acts_for(to_party):
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
        at, mono = self._moment or self._read_clocks()
        tx.journal(
            Row(
                0,
                at,
                mono,
                self.boot,
                self.name,
                note.kind.value,
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
                note.what.write(),
            )
            for note in notes
        )

    def keep_terms(self, tx: Transaction, terms: Terms) -> str:
        """Keep terms and journal them once, so that rows can refer to them by id."""
        terms_id = self._terms_ids.get(terms)
        if terms_id is None:
            terms_id = self._terms_ids[terms] = terms.terms_id
        if tx.remember_terms(terms):
            at, mono = self._moment or self._read_clocks()
            row = Row(0, at, mono, self.boot, self.name, Kind.TERMS.value, terms_id=terms_id)
            tx.journal([row._replace(detail=write_terms(terms))])
        return terms_id

    def keep_agreement(self, tx: Transaction, agreement: Agreement) -> str:
        """Keep the agreement that a message is accepted under, as it is today."""
        written = self._written.get(id(agreement))
        if written is None:
            text = write_whole(agreement)
            agreement_id = _agreement_id(text)
            # The agreement stays with it: an id is only good for what is alive.
            written = self._written[id(agreement)] = (agreement, agreement_id, text)
            self._kept.setdefault(agreement_id, agreement)
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
        kept = self._kept.get(agreement_id)
        if kept is None:
            text = keeper.agreement(agreement_id)
            if text is None:
                raise StoreDamaged(
                    f"the agreement {agreement_id} of a stored message is missing",
                    remedy="restore the store from a backup; its agreements are incomplete",
                )
            if _agreement_id(text) == agreement_id:
                kept = self._kept[agreement_id] = read_toml(text)
                self._written[id(kept)] = (kept, agreement_id, text)
            else:
                kept = self._still_agreed(agreement_id)
        return kept

    def _still_agreed(self, agreement_id: str) -> Agreement:
        """What is kept under that id says something else now. It is the digest of what it said:
        if that is agreed today still, nothing is lost."""
        for agreement in self.agreements:
            text = write_whole(agreement)
            if _agreement_id(text) == agreement_id:
                self._kept[agreement_id] = agreement
                return agreement
        raise StoreDamaged(
            f"the stored agreement {agreement_id} is damaged",
            remedy="put its row back from a backup; messages under it can be given up with "
            "`oncewire abandon`",
        )

    def agreement_accepted(self, stored: StoredIncoming) -> Agreement | None:
        """The same for a message that is read outside of any transition."""
        if stored.agreement_id is None or stored.agreement_id in self._kept:
            return self._kept.get(stored.agreement_id or "")
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
