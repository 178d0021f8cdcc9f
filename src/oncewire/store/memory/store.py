"""The store in memory, for tests and the simulator.

It keeps what is committed and what is not apart, as a disk would: `crash()` loses exactly
the latter, and the same object then serves the restarted node. It draws no chance and
reads no clock, so one seed replays one run.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from operator import itemgetter
from time import thread_time
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

from oncewire.errors import StoreFull, StoreGone, StoreProblem
from oncewire.journal.row import Row
from oncewire.message.envelope import is_trial
from oncewire.message.instant import Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.notes import Kind
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Reader, Transaction
from oncewire.store.memory.backend import MemoryBackend, Tables
from oncewire.store.records import (
    Incident,
    JournalSpan,
    Refusal,
    Removed,
    Space,
    SpoolSlice,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
    Unsettled,
    Word,
)
from oncewire.store.search import MARKED, Found, Mark, Place, Search, Tally, listed_state
from oncewire.store.spool import check_name
from oncewire.store.spool_contract import Digest
from oncewire.store.transition.rows import LIVE_OUTGOING, STORED_INCOMING, WordsRow, whole
from oncewire.store.transition.tables import Groups, Sorted
from oncewire.store.transition.turns import TransactionManager
from oncewire.store.transition.work import UnitOfWork

T = TypeVar("T")

# Queries on the tables in memory.


class MemoryReader:
    """See `contract.Reader`, whose docstrings hold here.

    It looks at the store's own tables while nothing is changed, and at a copy of what was
    committed from the moment something is.
    """

    __slots__ = ("_live", "_tables")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._live = True
        if tables.log:
            self.detach()

    def detach(self) -> None:
        """Called before the first change while this reader is open."""
        if self._live:
            self._tables = self._tables.committed()
            self._live = False

    def journal_since(self, seq: int, limit: int) -> list[Row]:
        keys = self._tables.journal.by_seq.keys
        start = bisect_left(keys, (seq + 1,))
        row = self._tables.journal.row
        return [row(key) for (key,) in keys[start : start + limit]]

    def journal_heads(self, seq: int, limit: int) -> dict[int, bytes]:
        del seq, limit
        return {}  # What dies with its process needs no proof.

    def journal_span(self, after: int, through: int) -> JournalSpan:
        seqs = [seq for (seq,) in self._tables.journal.by_seq.keys]
        rows = sum(after < seq <= through for seq in seqs)
        return JournalSpan(min(seqs, default=0), max(seqs, default=0), 0, rows)

    def journal_of(self, message_id: str) -> list[Row]:
        row = self._tables.journal.row
        return [row(seq) for _, seq in self._tables.journal.by_message.of(message_id)]

    def journal_ends(self, message_id: str, most: int) -> tuple[list[Row], int]:
        rows = self.journal_of(message_id)
        between = max(0, len(rows) - 2 * most)
        return rows[:most] + rows[most + between :], between

    def journal_marks(self, message_id: str) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        for row in self.journal_of(message_id)[:MARKED]:
            mark = found.get(row.kind, Mark(0, row.at, row.at))
            first, last = min(mark.first, row.at), max(mark.last, row.at)
            found[row.kind] = Mark(mark.count + 1, first, last)
        return found

    def terms(self, terms_id: str) -> Terms | None:
        return self._tables.terms.get(terms_id)

    def agreement(self, agreement_id: str) -> str | None:
        return self._tables.agreements.get(agreement_id)

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.stored

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        content = self._tables.outgoing_bytes.get(message_id)
        return None if content is None else content.parcel

    def receipt(self, message_id: str) -> StoredReceipt | None:
        row = self._tables.receipts.get(message_id)
        return None if row is None else row.receipt

    def incoming(self, message_id: str) -> list[StoredIncoming]:
        tables, found = self._tables, self._tables.incoming.by_id.of(message_id)
        rows = ((tables.incoming.row(key[-1]), key[-1]) for key in found)
        return [
            whole(row, tables.incoming_bytes.row(key), tables.answers.row(key)) for row, key in rows
        ]

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        row = self._tables.documents.get((sender, split_id))
        return None if row is None else row.document

    def on_hold(self, message_id: str) -> bool:
        table, sent = self._tables.incoming, self._tables.outgoing.get(message_id)
        held = [table.row(key[-1]).held for key in table.by_id.of(message_id)]
        return any(held) or (sent is not None and sent.held)

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        table = self._tables.outgoing
        return [table.row(key).stored for _, key in table.notices.after(after, limit)]

    def removed(self, message_id: str) -> list[Removed]:
        table = self._tables.removed
        return [table.row(key) for _, key in table.by_id.of(message_id)]

    def last_removal(self) -> Instant | None:
        keys = self._tables.removed.by_time.keys
        return keys[-1][0] if keys else None

    def last_seq(self) -> int:
        return self._tables.counters.get("journal") or 0

    def outgoing_list(
        self, *, states: Sequence[OutgoingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredOutgoing]:
        table = self._tables.outgoing
        keys = _newest(table.by_position, table.by_state, states, limit, before, is_trial)
        return [table.row(key).stored for key in keys]

    def incoming_list(
        self, *, states: Sequence[IncomingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredIncoming]:
        table = self._tables.incoming
        keys = _newest(
            table.by_row, table.by_state, states, limit, before, lambda key: is_trial(key[1])
        )
        return [table.row(key).stored for key in keys]

    def oldest_unsettled(self, limit: int) -> list[Unsettled]:
        table = self._tables.outgoing
        found = (
            table.row(key[-1]).stored
            for state in LIVE_OUTGOING
            for key in islice(table.by_state.of(state), limit)
        )
        return [
            Unsettled(one.peer, one.outgoing.channel, one.outgoing.state, one.outgoing.submitted_at)
            for one in found
        ]

    def find_sent(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredOutgoing]:
        tables, found = self._tables, []
        for message_id, row in tables.outgoing.present():
            stored = row.stored
            outgoing, at = stored.outgoing, stored.outgoing.submitted_at
            words = _words(tables.words.get(("", message_id)))
            state, to_party = listed_state(outgoing), stored.facts.to_party
            known = (message_id, stored.facts, to_party, state, at, words)
            shown = search.parts or not _is_part_of_ours(stored)
            shown = shown and (not search.again or outgoing.attempts > 1)
            if shown and not is_trial(message_id) and search.holds(*known):
                found.append((Place(at, stored.position), stored))
        return _page(found, limit, after)

    def find_received(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredIncoming]:
        tables, found = self._tables, []
        for key, row in tables.incoming.present():
            stored = row.stored
            facts, incoming, at = stored.facts, stored.incoming, stored.incoming.received_at
            words = _words(tables.words.get(key))
            known = (key[1], facts, facts.from_party, incoming.state, at, words)
            shown = search.parts or not stored.stands_behind
            if search.again and Kind.DUPLICATE.value not in self.journal_marks(key[1]):
                shown = False
            if shown and not is_trial(key[1]) and search.holds(*known):
                found.append((Place(at, stored.row), stored))
        return _page(found, limit, after)

    def count_sent(self, search: Search, most: int) -> Tally:  # noqa: ARG002
        found = self.find_sent(search, len(self._tables.outgoing.present()))
        return Tally(Counter(listed_state(each.outgoing) for each in found.messages))

    def count_received(self, search: Search, most: int) -> Tally:  # noqa: ARG002
        found = self.find_received(search, len(self._tables.incoming.present()))
        return Tally(Counter(each.incoming.state.value for each in found.messages))

    def counts(self) -> dict[str, int]:
        sent, received = self._tables.outgoing, self._tables.incoming
        counts = {}
        for state in OutgoingState:
            ids = [key[-1] for key in sent.by_state.of(state) if not is_trial(key[-1])]
            rows = map(sent.row, ids)
            counts[f"out.{state.value}"] = sum(not _is_part_of_ours(row.stored) for row in rows)
        for arrived in STORED_INCOMING:
            keys = [key[-1] for key in received.by_state.of(arrived) if not is_trial(key[-1][1])]
            counts[f"in.{arrived.value}"] = sum(
                not received.row(key).stored.stands_behind for key in keys
            )
        return counts

    def parts_counted(self) -> dict[str, int]:
        sent, received = self._tables.outgoing, self._tables.incoming
        counts = Counter(
            f"out.{row.stored.outgoing.state.value}"
            for _, row in sent.present()
            if _is_part_of_ours(row.stored)
        )
        counts.update(
            f"in.{row.stored.incoming.state.value}"
            for _, row in received.present()
            if row.stored.stands_behind
        )
        return dict(counts)

    def incidents(self, *, open_only: bool = True) -> list[Incident]:
        return [
            incident
            for _, incident in sorted(self._tables.incidents.present())
            if not open_only or incident.resolved_at is None
        ]

    def refusals(self, limit: int = 100) -> list[Refusal]:
        found = [refusal for _, refusal in self._tables.refusals.present()]
        return sorted(found, key=lambda refusal: (-refusal.last_at, refusal.code, refusal.address))[
            :limit
        ]

    def refused_ids(self, part: str, limit: int) -> list[str]:
        journal = self._tables.journal
        rows = [journal.row(seq) for (seq,) in journal.by_seq.keys]
        known = list(dict.fromkeys(row.message_id for row in rows if row.message_id is not None))
        refused = {row.message_id for row in rows if row.kind == Kind.REFUSED}
        newest = reversed(known[-limit:])
        return [one for one in newest if part in one and one in refused and not is_trial(one)]

    def channels(self, limit: int = 2**62) -> tuple[list[SendingChannel], list[ReceivingChannel]]:
        sending, receiving = self._tables.sending, self._tables.receiving
        return (
            [channel for _, channel in sorted(sending.present(), key=itemgetter(0))[:limit]],
            [channel for _, channel in sorted(receiving.present(), key=itemgetter(0))[:limit]],
        )

    def sending_channel(self, key: str) -> SendingChannel | None:
        return self._tables.sending.get(key)

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        return self._tables.receiving.get(key)

    def spooled(self) -> set[str]:
        tables = self._tables
        parcels = [content.parcel for _, content in tables.outgoing_bytes.present()]
        parcels += [content.parcel for _, content in tables.incoming_bytes.present()]
        parcels += [content.parcel for _, content in tables.answers.present()]
        parcels += [row.receipt.parcel for _, row in tables.receipts.present()]
        named = {
            part.name
            for parcel in parcels
            if parcel is not None
            for part in parcel.body
            if isinstance(part, SpoolSlice)
        }
        for _, content in tables.outgoing_bytes.present():
            named.update(file.name for file in content.files)
        return named


def _newest(
    everything: Sorted,
    by_state: Groups,
    states: Sequence[Any],
    limit: int,
    before: int | None,
    left_out: Callable[[Any], bool],
) -> list[Any]:
    """Keys from the greatest number down, below `before`, in one of the states if any."""
    if states:
        chosen = [key[1:] for state in set(states) for key in by_state.of(state)]
        chosen.sort()
    else:
        chosen = everything.keys
    end = len(chosen) if before is None else bisect_left(chosen, (before,))
    counted = (key for _, key in reversed(chosen[:end]) if not left_out(key))
    return list(islice(counted, limit))


def _words(row: WordsRow | None) -> tuple[Word, ...]:
    return () if row is None else row.words


def _page(found: list[tuple[Place, T]], limit: int, after: Place | None) -> Found[T]:
    end = None if after is None else (after.at, after.number)
    placed = sorted(
        [((place.at, place.number), stored) for place, stored in found], key=itemgetter(0)
    )
    meant = [pair for pair in reversed(placed) if end is None or pair[0] < end]
    page = tuple(stored for _, stored in meant[:limit])
    return Found(page, Place(*meant[limit - 1][0]) if len(meant) > limit else None)


def _is_part_of_ours(stored: StoredOutgoing) -> bool:
    return stored.facts.split_number is not None and stored.relayed_from is None


# The spool in memory.


class MemorySpool:
    """Large payloads in a dictionary; a put is durable at once, as a file is after fsync."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._in_use: Counter[str] = Counter()
        self._made: set[str] = set()

    def begin(self) -> MemorySpoolFile:
        """See `spool_contract.Spool`."""
        return MemorySpoolFile(self.put)

    def put(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """See `spool_contract.Spool`."""
        content = b"".join(chunks)
        name = self.name_of([content])
        self.use(name)
        if self._in_use[name] == 1 and name not in self._files:
            self._made.add(name)
        self._files[name] = content
        return name, len(content)

    def put_unblocked(self, body: bytes) -> tuple[str, int]:
        """See `spool_contract.Spool`."""
        return self.put((body,))

    def name_of(self, pieces: Iterable[bytes]) -> str:
        """See `spool_contract.Spool`."""
        return hashlib.sha256(b"".join(pieces)).hexdigest()

    def worked(self) -> float:
        """See `spool_contract.Spool`."""
        return thread_time()

    def use(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        self._in_use[name] += 1

    def let_go(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        self._made.discard(name)
        if self._in_use[name] > 0:
            self._in_use[name] -= 1

    def give_back(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        made = name in self._made
        self.let_go(name)
        if made and self._in_use[name] > 0:
            self._made.add(name)
        elif made:
            del self._files[name]

    def crash(self) -> None:
        """Forget the uses of a process that died."""
        self._in_use.clear()
        self._made.clear()

    def open(self, name: str) -> BinaryIO:
        """See `spool_contract.Spool`."""
        check_name(name)
        if name not in self._files:
            raise StoreProblem(f"spool file {name} is missing", remedy="restore it from a copy")
        return io.BytesIO(self._files[name])

    def path(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        check_name(name)

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """See `spool_contract.Spool`."""
        loose = sorted(self._files.keys() - referenced)
        gone = [name for name in loose if self._in_use[name] <= 0][:limit]
        for name in gone:
            del self._files[name]
        return len(gone)


class MemorySpoolFile:
    """See `spool_contract.SpoolFile`."""

    def __init__(self, put: Callable[[Iterable[bytes]], tuple[str, int]]) -> None:
        self._put = put
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """See `spool_contract.SpoolFile`."""
        self._pieces.append(data)

    def digest(self) -> Digest:
        """See `spool_contract.SpoolFile`."""
        return hashlib.sha256(b"".join(self._pieces))

    def finish(self) -> tuple[str, int]:
        """See `spool_contract.SpoolFile`."""
        return self._put(self._pieces)

    def abandon(self) -> None:
        """See `spool_contract.SpoolFile`."""
        self._pieces.clear()


class MemoryStore(TransactionManager):
    """See `contract.Store`, whose docstrings hold here."""

    def __init__(self, node: str = "node") -> None:
        super().__init__()
        self.spool = MemorySpool()
        self._node = node
        self._tables = Tables()
        self._readers: list[MemoryReader] = []
        self._commit_failure: StoreProblem | None = None
        self._transition_failure: StoreFull | StoreGone | None = None

    def reader(self) -> AbstractContextManager[Reader]:
        """See `contract.Store`."""
        return _OpenReader(self._tables, self._readers)

    def space(self) -> Space:
        """See `contract.Store`; it lies on no disk."""
        return Space()

    def node(self) -> str:
        """See `contract.Store`."""
        return self._node

    def close(self) -> None:
        """Undo what is not committed; the object may be used again, like a file reopened."""
        self.crash()

    # --- for tests and the simulator ---

    def crash(self) -> None:
        """The process died: everything since the last commit is gone, even a transition
        that is open. The same object then serves the restarted node."""
        self._open = self._lost = None
        self._detach()
        self._readers.clear()
        self._abandon()
        self.spool.crash()

    def fail_next_commit(self, error: StoreProblem) -> None:
        """Let the next commit that has something to do fail with this error."""
        self._commit_failure = error

    def fail_next_transition(self, error: StoreFull | StoreGone) -> None:
        """Let the store fail with this error when the next transition begins."""
        self._transition_failure = error

    # --- for its transitions ---

    def enter(self, transition: AbstractContextManager[Transaction]) -> Transaction:
        """See `TransactionManager`."""
        failure, self._transition_failure = self._transition_failure, None
        if failure is not None:
            self._lose(failure, kept=self.pending())
            raise failure
        return super().enter(transition)

    def _begin(self) -> UnitOfWork:
        return UnitOfWork(MemoryBackend(self._tables, self._detach))

    def _abandon(self) -> None:
        self._tables.undo_to(0)
        self._work = None

    def _commit(self, work: UnitOfWork) -> None:
        failure, self._commit_failure = self._commit_failure, None
        if failure is not None:
            raise failure
        work.write()
        work.backend.commit()
        work.rest()

    def _detach(self) -> None:
        for reader in self._readers:
            reader.detach()


class _OpenReader(AbstractContextManager[Reader]):
    __slots__ = ("_reader", "_readers", "_tables")

    def __init__(self, tables: Tables, readers: list[MemoryReader]) -> None:
        self._tables, self._readers = tables, readers

    def __enter__(self) -> Reader:
        self._reader = MemoryReader(self._tables)
        self._readers.append(self._reader)
        return self._reader

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reader in self._readers:
            self._readers.remove(self._reader)
