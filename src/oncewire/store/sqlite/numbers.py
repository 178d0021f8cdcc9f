"""The numbers that the tables know MessageIds by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from oncewire.store.sqlite.statements import Statements

REMEMBERED = 50_000
"""How many MessageIds are remembered at most; beyond it, all are read anew."""

_FIND = "SELECT id FROM message WHERE message_id = ?"
_FIND_SOME = (
    "SELECT message_id, id FROM message WHERE message_id IN (SELECT value FROM json_each(?))"
)


class Numbers:
    """Numbers by MessageId; None: it has none yet."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._known: dict[str, int | None] = {}
        self._last: int | None = None

    def of(self, message_ids: Sequence[str]) -> list[int]:
        """The numbers of those that have one."""
        self.find(message_ids)
        found = map(self._known.__getitem__, message_ids)
        return [number for number in found if number is not None]

    def learn(self, numbers: Iterable[tuple[str, int]]) -> None:
        """These were found with something else."""
        self._known.update(numbers)

    def give(self, message_ids: Iterable[str]) -> Mapping[str, int]:
        """The numbers of all of them, given here to those that have none."""
        wanted = list(dict.fromkeys(message_ids))
        self.find(wanted)
        new = [message_id for message_id in wanted if self._known[message_id] is None]
        if not new:
            return cast(dict[str, int], self._known)
        if self._last is None:
            self._last = int(self._statements.run("SELECT ifnull(max(id), 0) FROM message")[0][0])
        rows = list(enumerate(new, self._last + 1))
        insert = "INSERT INTO message (id, message_id) VALUES (?, ?)"
        self._statements.run_batches([(insert, rows)])
        self._last += len(rows)
        self._known.update((message_id, number) for number, message_id in rows)
        return cast(dict[str, int], self._known)

    def find(self, message_ids: Iterable[str]) -> None:
        """Know which of them have one."""
        known = self._known
        missing = [message_id for message_id in message_ids if message_id not in known]
        if not missing:
            return
        if len(missing) == 1:
            rows = self._statements.run(_FIND, (missing[0],))
            known[missing[0]] = rows[0][0] if rows else None
            return
        known.update(dict.fromkeys(missing))
        given = json.dumps(missing, ensure_ascii=False)
        known.update(self._statements.run(_FIND_SOME, (given,)))

    def forget(self) -> None:
        """Numbers were given, taken or removed otherwise; what is remembered may not hold."""
        self._known.clear()
        self._last = None

    def bound(self) -> None:
        """Remember no more than fits."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
