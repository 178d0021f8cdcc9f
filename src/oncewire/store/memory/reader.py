"""Queries on the tables in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.memory.tables import Groups, Sorted, Tables, without_bytes
from oncewire.store.records import (
    Incident,
    Refusal,
    Removed,
    SpoolSlice,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.schedule import STORED_INCOMING


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
        rows = self._tables.journal.rows
        return [rows[key] for (key,) in keys[start : start + limit]]

    def journal_of(self, message_id: str) -> list[Row]:
        rows = self._tables.journal.rows
        return [rows[seq] for _, seq in self._tables.journal.by_message.of(message_id)]

    def agreement(self, agreement_id: str) -> str | None:
        return self._tables.agreements.get(agreement_id)

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.stored

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.parcel

    def incoming(self, message_id: str) -> list[StoredIncoming]:
        table = self._tables.incoming
        return [table.rows[key[-1]].stored for key in table.by_id.of(message_id)]

    def on_hold(self, message_id: str) -> bool:
        table, sent = self._tables.incoming, self._tables.outgoing.get(message_id)
        held = [table.rows[key[-1]].held for key in table.by_id.of(message_id)]
        return any(held) or (sent is not None and sent.held)

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        return self._tables.outgoing.owed(limit, after)

    def removed(self, message_id: str) -> list[Removed]:
        table = self._tables.removed
        return [table.rows[key] for _, key in table.by_id.of(message_id)]

    def last_removal(self) -> Instant | None:
        keys = self._tables.removed.by_time.keys
        return keys[-1][0] if keys else None

    def last_seq(self) -> int:
        return self._tables.counters.get("journal") or 0

    def outgoing_list(
        self, *, states: Sequence[OutgoingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredOutgoing]:
        table = self._tables.outgoing
        keys = _newest(table.by_position, table.by_state, states, limit, before)
        return [table.rows[key].stored for key in keys]

    def incoming_list(
        self, *, states: Sequence[IncomingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredIncoming]:
        table = self._tables.incoming
        keys = _newest(table.by_row, table.by_state, states, limit, before)
        return [without_bytes(table.rows[key].stored) for key in keys]

    def counts(self) -> dict[str, int]:
        sent, received = self._tables.outgoing.by_state, self._tables.incoming.by_state
        counts = {f"out.{state.value}": len(sent.of(state)) for state in OutgoingState}
        counts.update({f"in.{state.value}": len(received.of(state)) for state in STORED_INCOMING})
        return counts

    def incidents(self, *, open_only: bool = True) -> list[Incident]:
        return [
            incident
            for _, incident in sorted(self._tables.incidents.rows.items())
            if not open_only or incident.resolved_at is None
        ]

    def refusals(self, limit: int = 100) -> list[Refusal]:
        found = self._tables.refusals.rows.values()
        return sorted(found, key=lambda refusal: (-refusal.last_at, refusal.code, refusal.address))[
            :limit
        ]

    def channels(self) -> tuple[list[SendingChannel], list[ReceivingChannel]]:
        sending, receiving = self._tables.sending.rows, self._tables.receiving.rows
        return [sending[key] for key in sorted(sending)], [
            receiving[key] for key in sorted(receiving)
        ]

    def spooled(self) -> set[str]:
        parcels: list[StoredParcel | None] = [
            row.parcel for row in self._tables.outgoing.rows.values()
        ]
        for received in self._tables.incoming.rows.values():
            parcels.append(received.stored.parcel)
            if received.stored.answer is not None:
                parcels.append(received.stored.answer.parcel)
        return {
            part.name
            for parcel in parcels
            if parcel is not None
            for part in parcel.body
            if isinstance(part, SpoolSlice)
        }


def _newest(
    everything: Sorted, by_state: Groups, states: Sequence[Any], limit: int, before: int | None
) -> list[Any]:
    """Keys from the greatest number down, below `before`, in one of the states if any."""
    if states:
        chosen = [key[1:] for state in set(states) for key in by_state.of(state)]
        chosen.sort()
    else:
        chosen = everything.keys
    end = len(chosen) if before is None else bisect_left(chosen, (before,))
    return [key for _, key in reversed(chosen[max(end - limit, 0) : end])]
