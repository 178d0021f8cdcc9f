"""HandlerContext: what every verb of the handler works with, and how it writes the journal."""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.toml.reader import read_toml
from oncewire.agreement.toml.writer import write_whole
from oncewire.errors import StoreDamaged, StoreFull, StoreGone
from oncewire.handler.actions import Post
from oncewire.handler.spool_reading import Proofs
from oncewire.handler.state import IN_FLIGHT_MAX, Caches, ProcessState
from oncewire.handler.world import Timeline, World
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.effects import Note
from oncewire.protocol.notes import Kind, write_terms
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader, Store, Transaction
from oncewire.store.records import StoredIncoming
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.security.algorithms import SigningKey

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
        return 0 if self.at_rest else max(0, IN_FLIGHT_MAX - len(self.state.in_flight))

    @contextmanager
    def transition(self) -> Iterator[Transaction]:
        """A transition of the store that happens at one instant.

        Its timers and its journal rows must tell the same time: a row that is stamped later
        than the timer it explains was set makes the next attempt look too early.
        """
        state = self.state
        state.moment = state.timeline.read(self.world)
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
            raise
        finally:
            state.moment = None

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
        tx.shift_timers(self.state.timeline.ahead)
        by = self.state.timeline.follow()
        self.state.shift(by)
        self.state.moment = self.state.timeline.read(self.world)
        return by

    def new_message_id(self) -> str:
        """A MessageId nobody has used before."""
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
        terms_id = self.caches.terms_ids.get(terms)
        if terms_id is None:
            terms_id = self.caches.terms_ids[terms] = terms.terms_id
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
