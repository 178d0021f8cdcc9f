"""Damage: statements that find rows that cannot be read, and mend them.

Only values that cannot be read at all are known to be damaged. A mended row is not what it was:
it is harmless, so that an operator can end what it stood for.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.message.envelope import MessageKind, SequenceStatus
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState, Proof
from oncewire.store.sql.rows import MEASURES, POSSIBLE, RECEIVING, SENDING
from oncewire.store.transition.rows import FINAL_INCOMING


def _sql_list(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(str(each_word) for each_word in words))


def _mended(column: str, words: Iterable[str], instead: str) -> str:
    """The column as it is if it has one of the words, or else this instead."""
    return f"{column} = CASE WHEN {column} IN ({_sql_list(words)}) THEN {column} ELSE {instead} END"


_NORMAL = f"'{MessageKind.NORMAL.value}'"

# Every statement is put together from the words of our own enumerations.
MEND_OUTGOING = (
    "UPDATE outgoing SET "  # noqa: S608
    f"{_mended('state', OutgoingState, _sql_list(['suspended']))}, "
    f"{_mended('status', SequenceStatus, 'NULL')}, "
    f"{_mended('proved_by', Proof, 'NULL')}, "
    f"{_mended('kind', MessageKind, _NORMAL)} "
    "WHERE message = ?1 AND NOT ("
    f"state IN ({_sql_list(OutgoingState)}) AND kind IN ({_sql_list(MessageKind)}) "
    f"AND (status IS NULL OR status IN ({_sql_list(SequenceStatus)})) "
    f"AND (proved_by IS NULL OR proved_by IN ({_sql_list(Proof)})))"
)
MEND_INCOMING = (
    "UPDATE incoming SET "  # noqa: S608
    f"{_mended('state', IncomingState, _sql_list(['ready']))}, "
    f"{_mended('kind', MessageKind, _NORMAL)} "
    "WHERE message = ?1 AND NOT ("
    f"state IN ({_sql_list(IncomingState)}) AND kind IN ({_sql_list(MessageKind)}))"
)
BAD_BYTES = (
    "SELECT incoming.row FROM incoming JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
    "WHERE message = ?"
)
NO_BYTES = (
    "UPDATE incoming_bytes SET content_type = NULL, headers = NULL, layout = NULL, body = NULL, "
    "answer_content_type = NULL, answer_headers = NULL, answer_layout = NULL, answer_body = NULL, "
    "view = NULL WHERE row = ?"
)
UNANSWERED = "UPDATE incoming SET answer_id = NULL, answer_owed = 0 WHERE row = ?"


def _possible(columns: tuple[str, ...]) -> str:
    return ", ".join(
        f"{name} = CASE WHEN abs({name}) < {POSSIBLE} THEN {name} ELSE 0 END"
        for name in columns
        if name in MEASURES
    )


MEND_SENDING = (
    "UPDATE sending_channel SET settled = '[]', numbers = NULL, ending = 1, "  # noqa: S608
    f"{_possible(SENDING)} WHERE key = ?"
)
MEND_RECEIVING = (
    f"UPDATE receiving_channel SET held = '[]', numbers = NULL, {_possible(RECEIVING.names)} "  # noqa: S608
    "WHERE key = ?"
)

KNOWN_STATES = {
    "outgoing": {state.value for state in OutgoingState},
    "incoming": {state.value for state in IncomingState},
}
FINAL_STATES = {
    "outgoing": {state.value for state in FINAL_OUTGOING},
    "incoming": {state.value for state in FINAL_INCOMING},
}


def damaged_in(table: str, key: str) -> str:
    """The question for messages of one state that no list can find or that have lost their bytes:
    key, MessageId, and whether the bytes are gone. Given are the state, and whether all count."""
    return (
        f"SELECT {table}.{key}, message_id, {table}_bytes.{key} IS NULL FROM {table} "  # noqa: S608
        f"LEFT JOIN message ON message.id = {table}.message "
        f"LEFT JOIN {table}_bytes ON {table}_bytes.{key} = {table}.{key} WHERE state = ?1 "
        f"AND (?2 = 1 OR message_id IS NULL OR {table}_bytes.{key} IS NULL "
        f"OR kind NOT IN ({_sql_list(MessageKind)}))"
    )
