"""Damage on SQLite: steps that find rows nobody can read, and mend them.

Only values that cannot be read at all are known to be damaged. A mended row is not what it was:
it is harmless, so that an operator can end what it stood for.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.errors import StoreDamaged
from oncewire.message.envelope import MessageKind
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState, Proof
from oncewire.store.records import Damage
from oncewire.store.sqlite.loading import Loading
from oncewire.store.sqlite.rows import MEASURES, POSSIBLE, RECEIVING, SENDING, STATUS_WORDS
from oncewire.store.transition.rows import FINAL_INCOMING


def _sql_list(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(str(each_word) for each_word in words))


# Every statement is put together from the words of our own enumerations.
_MEND_OUTGOING = (
    "UPDATE outgoing SET "  # noqa: S608
    f"state = iif(state IN ({_sql_list(OutgoingState)}), state, 'suspended'), "
    f"status = iif(status IN ({_sql_list(STATUS_WORDS)}), status, NULL), "
    f"proved_by = iif(proved_by IN ({_sql_list(Proof)}), proved_by, NULL), "
    f"kind = iif(kind IN ({_sql_list(MessageKind)}), kind, '{MessageKind.NORMAL.value}') "
    "WHERE message = ?1 AND NOT ("
    f"state IN ({_sql_list(OutgoingState)}) AND kind IN ({_sql_list(MessageKind)}) "
    f"AND ifnull(status IN ({_sql_list(STATUS_WORDS)}), 1) "
    f"AND ifnull(proved_by IN ({_sql_list(Proof)}), 1))"
)
_MEND_INCOMING = (
    "UPDATE incoming SET "  # noqa: S608
    f"state = iif(state IN ({_sql_list(IncomingState)}), state, 'ready'), "
    f"kind = iif(kind IN ({_sql_list(MessageKind)}), kind, '{MessageKind.NORMAL.value}') "
    "WHERE message = ?1 AND NOT ("
    f"state IN ({_sql_list(IncomingState)}) AND kind IN ({_sql_list(MessageKind)}))"
)
_BAD_BYTES = (
    "SELECT incoming.row FROM incoming JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
    "WHERE message = ?"
)
_NO_BYTES = (
    "UPDATE incoming_bytes SET content_type = NULL, headers = NULL, layout = NULL, body = NULL, "
    "answer_content_type = NULL, answer_headers = NULL, answer_layout = NULL, answer_body = NULL, "
    "view = NULL WHERE row = ?"
)
_UNANSWERED = "UPDATE incoming SET answer_id = NULL, answer_owed = 0 WHERE row = ?"


def _possible(columns: tuple[str, ...]) -> str:
    return ", ".join(
        f"{name} = iif(abs({name}) < {POSSIBLE}, {name}, 0)" for name in columns if name in MEASURES
    )


_MEND_SENDING = (
    "UPDATE sending_channel SET settled = '[]', numbers = NULL, ending = 1, "  # noqa: S608
    f"{_possible(SENDING)} WHERE key = ?"
)
_MEND_RECEIVING = (
    f"UPDATE receiving_channel SET held = '[]', numbers = NULL, {_possible(RECEIVING)} "  # noqa: S608
    "WHERE key = ?"
)

_KNOWN = {
    "outgoing": {state.value for state in OutgoingState},
    "incoming": {state.value for state in IncomingState},
}
_FINAL = {
    "outgoing": {state.value for state in FINAL_OUTGOING},
    "incoming": {state.value for state in FINAL_INCOMING},
}
_KEY = {"outgoing": "position", "incoming": "row"}


class Mending(Loading):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def mend(self, message_id: str) -> bool:
        mended = 0
        for number in self._numbers.of((message_id,)):
            for statement in (_MEND_OUTGOING, _MEND_INCOMING):
                self.run(statement, (number,))
                mended += self.changed_rows()
            mended += self._mend_bytes(message_id, number)
        return mended > 0

    def _mend_bytes(self, message_id: str, number: int) -> int:
        """Neither the bytes nor the answer of a message can be had any more, if any of them is
        damaged."""
        try:
            for row in self.incoming((message_id,)):
                self.incoming_bytes((row.stored.incoming.sender, message_id))
        except StoreDamaged:
            for place in self.run(_BAD_BYTES, (number,)):
                self.run(_NO_BYTES, place)
                self.run(_UNANSWERED, place)
            return 1
        return 0

    def mend_channel(self, key: str) -> bool:
        mended = False
        try:
            self.sending_channel(key)
        except StoreDamaged:
            self.run(_MEND_SENDING, (key,))
            mended = True
        try:
            self.receiving_channel(key)
        except StoreDamaged:
            self.run(_MEND_RECEIVING, (key,))
            mended = True
        return mended

    def damaged(self) -> list[Damage]:
        found: list[Damage] = []
        for table in ("outgoing", "incoming"):
            states = {row[0] for row in self.run(f"SELECT DISTINCT state FROM {table}")}  # noqa: S608
            for state in sorted(states - _FINAL[table]):
                why = f"its state is {state[:40]!r}" if state not in _KNOWN[table] else ""
                found += self._damaged_in(table, state, why)
        return found

    def _damaged_in(self, table: str, state: str, why: str) -> list[Damage]:
        key = _KEY[table]
        rows = self.run(
            f"SELECT {table}.{key}, message_id, {table}_bytes.{key} IS NULL FROM {table} "  # noqa: S608
            f"LEFT JOIN message ON message.id = {table}.message "
            f"LEFT JOIN {table}_bytes ON {table}_bytes.{key} = {table}.{key} WHERE state = ?1 "
            f"AND (?2 OR message_id IS NULL OR {table}_bytes.{key} IS NULL "
            f"OR kind NOT IN ({_sql_list(MessageKind)}))",
            (state, bool(why)),
        )
        return [
            Damage(
                why
                or (f"it has lost its MessageId (row {place})" if message_id is None else "")
                or ("its bytes are gone" if gone else "its kind cannot be read"),
                message_id,
                table == "outgoing",
            )
            for place, message_id, gone in rows
        ]
