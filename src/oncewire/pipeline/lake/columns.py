"""Every column of every table: its name with its unit, its type, and its comment in the schema.

One convention holds for silver and gold. An instant is a timestamp in UTC, and but for `at` and
`hour` its name ends with `_at`; a day ends with `_on`. A duration ends with `_us` (microseconds), a
size with `_bytes`. A count is a noun of what is counted, or ends with `_count`. What is true or
false is a boolean. Bronze is the journal's own contract and the envelopes' own words, unchanged.

The comment is kept with the column wherever the schema goes: Delta's log, Spark's views, and the
footers of the Parquet files. The names that a column had before (`v1`) can still be asked for.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.row import SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa

COMMENT: Final = "comment"
"""The name under which a schema has a column's comment."""

_V1, _V1_PER = "oncewire.v1", "oncewire.v1_per"
"""What a column was called in the first version, and by how many of it one of that unit is."""

_INT, _LONG, _TEXT = IntegerType(), LongType(), StringType()
_FLAG, _TIME, _SHARE = BooleanType(), TimestampType(), DoubleType()


def _column(
    name: str,
    kind: DataType,
    comment: str,
    *,
    always: bool = False,
    v1: str | None = "",
    v1_per: int = 1,
) -> StructField:
    """A column. `always`: it is never empty. `v1`: its name in the first version, if that was
    another; None: it was not there. `v1_per`: how many of its unit were one."""
    said: dict[str, Any] = {COMMENT: comment}
    if v1 != "":
        said[_V1] = v1
    if v1_per != 1:
        said[_V1_PER] = v1_per
    return StructField(name, kind, not always, said)


def _columns(*columns: StructField) -> StructType:
    return StructType(list(columns))


# --- bronze: what came, unchanged -----------------------------------------------------------

_OF_ROWS = {
    "seq": "Position in the node's journal; positions of different nodes do not compare.",
    "at": "When it happened, in microseconds since 1970, UTC, by the node's clock.",
    "mono": "Steady microseconds; they compare within one run, or one boot of the machine.",
    "boot": "Which run of the process wrote the row; before a dot, the boot of its machine.",
    "node": "Which handler wrote the row.",
    "kind": "What happened.",
    "message_id": "The message that it happened to.",
    "ref_to": "The message that the message refers to.",
    "terms_id": "The terms under which the message travels.",
    "channel": "The channel of a numbered message.",
    "epoch": "The epoch of the channel: numbers begin anew in each.",
    "sequence_number": "The number of the message in its epoch.",
    "attempt": "Which transmission it was: 1 for the first.",
    "hop": "Which hop of its way the message was on.",
    "peer": "The other party or handler of the event.",
    "transport": "By which transport it went or came.",
    "digest": "Identity digest of the message; of kind joined, the SHA-256 of the document.",
    "size": "Bytes of the message.",
    "detail": "JSON with what has no column of its own.",
}

JOURNAL: Final = StructType(
    [
        _column(
            column.name,
            _LONG if column.type is int else _TEXT,
            _OF_ROWS[column.name],
            always=not column.nullable,
        )
        for column in SCHEMA
    ]
)
"""The journal as every backend has it: `oncewire.journal.row`."""


def _of_row(name: str, kind: DataType = _TEXT, *, always: bool = False) -> StructField:
    """A column that says what the journal's column of that name says."""
    return _column(name, kind, _OF_ROWS[name], always=always)


QUARANTINE: Final = _columns(
    _column("source", _TEXT, "The book that the row came from.", always=True),
    _of_row("node"),
    _of_row("seq", _LONG),
    _column("problem", _TEXT, "What breaks the contract.", always=True),
    _column("raw", _TEXT, "The row as JSON.", always=True),
    _of_row("at", _LONG),
    _of_row("boot"),
    _of_row("kind"),
    _of_row("message_id"),
    _of_row("channel"),
    _of_row("terms_id"),
)
"""Journal rows that break the contract, as JSON, each with the reason: kept, not judged."""

BOOTS: Final = _columns(
    _of_row("node", always=True),
    _of_row("boot", always=True),
    _column("first", _LONG, "Position of its first row.", always=True),
    _column("at", _LONG, "When that row was written, in microseconds.", always=True),
    _column("started", _FLAG, "Whether a row says that it started.", always=True),
    _column("at_work", _FLAG, "Whether a row says that it did anything.", always=True),
)
"""The runs of the handlers' processes, as far as one range of a journal shows them."""

SPLIT_ROWS: Final = StructType(
    [*JOURNAL.fields, _column("document", _TEXT, "SplitId of the document that it is about.")]
)
"""Journal rows about a split document, with its SplitId."""

PAYLOAD: Final = _columns(
    _column("content_id", _TEXT, "Content-ID of the part.", always=True),
    _column("media_type", _TEXT, "Media type of the part.", always=True),
    _column("size", _LONG, "Bytes of the part.", always=True),
    _column("digest", _TEXT, "SHA-256 of the part.", always=True),
    _column("data", BinaryType(), "The bytes, if they were asked for."),
)

ENVELOPES: Final = _columns(
    # Where it was found.
    _column("file", _TEXT, "File in which it was found.", always=True),
    _column("member", _TEXT, "Name inside a tar or zip file."),
    _column("position", _INT, "Which message of its file it is.", always=True),
    _column("file_size", _LONG, "Bytes of the file.", always=True),
    _column("modified", _LONG, "When the file was changed, in microseconds.", always=True),
    _column("size", _LONG, "Bytes of the message."),
    _column("sha256", _TEXT, "SHA-256 of the message's bytes."),
    _column("capture", _TEXT, "How the bytes were wrapped."),
    # What is wrong with it, if anything is.
    _column("readable", _FLAG, "False where it is no message.", always=True),
    _column("code", _TEXT, "Error code, where it cannot be read."),
    _column("location", _TEXT, "Where in the message the error is."),
    _column("problem", _TEXT, "What is wrong with it."),
    # What it says.
    _column("dialect", _TEXT, "Which draft or version of ebXML it is written in."),
    _column("kind", _TEXT, "A user's message, an acknowledgement, an error and so on."),
    _column("message_id", _TEXT, "MessageId."),
    _column("ref_to", _TEXT, "RefToMessageId."),
    _column("conversation_id", _TEXT, "ConversationId."),
    _column("cpa_id", _TEXT, "CPAId: which agreement it names."),
    _column("from_party", _TEXT, "PartyId of the From Party."),
    _column("from_role", _TEXT, "Role of the From Party."),
    _column("to_party", _TEXT, "PartyId of the To Party."),
    _column("to_role", _TEXT, "Role of the To Party."),
    _column("service", _TEXT, "Service."),
    _column("action", _TEXT, "Action."),
    _column("sent_at", _TIME, "Timestamp of the header."),
    _column("time_to_live", _TIME, "TimeToLive: the instant at which it expires."),
    _column("semantics", _TEXT, "Delivery semantics that the header asks for."),
    _column("reliable", _FLAG, "Whether reliable messaging is asked for."),
    _column("sequence_number", _LONG, "SequenceNumber."),
    _column("sequence_status", _TEXT, "Status of the number: Reset or Continue."),
    _column("hops", _INT, "How many hops the header records."),
    _column("split_id", _TEXT, "SplitId of the document that it is a part of."),
    _column("split_number", _LONG, "Which part it is."),
    _column("split_total", _LONG, "How many parts there are."),
    _column("ack_requested", _FLAG, "Whether an acknowledgement is asked for."),
    _column("acknowledges", _TEXT, "MessageId that it acknowledges."),
    _column("errors", ArrayType(_TEXT), "Codes of the errors that it reports."),
    _column("signed", _FLAG, "Whether there is a signature; it is not verified here."),
    _column("closed", _FLAG, "False where its end may have been cut off."),
    _column("payload_count", _INT, "How many payloads it has."),
    _column("payload_bytes", _LONG, "Bytes of all payloads."),
    _column("digest", _TEXT, "Identity digest of the message."),
    _column("schema_problems", _INT, "How often it departs from its schema."),
    _column("notes", ArrayType(_TEXT), "What was forgiven in reading it."),
)
"""Raw messages of an archive, one row each; `readable` is false where one could not be read."""

ENVELOPES_WITH_PAYLOADS: Final = StructType(
    [*ENVELOPES.fields, _column("payloads", ArrayType(PAYLOAD), "The payloads.")]
)


# --- silver: one fact a row, typed ------------------------------------------------------------

_SPLIT = (
    _column("split_id", _TEXT, "SplitId: the document that it is, or is a part of."),
    _column("split_number", _LONG, "Which part of the document it is."),
    _column("split_total", _LONG, "How many parts the document has."),
)

_HEADER = (
    _column("from_party", _TEXT, "The From Party."),
    _column("to_party", _TEXT, "The To Party."),
    _column("cpa_id", _TEXT, "CPAId: which agreement the header names."),
    _column("conversation_id", _TEXT, "ConversationId."),
    _column("service", _TEXT, "Service."),
    _column("action", _TEXT, "Action."),
)

_AT = _column("at", _TIME, "When it happened, by the node's clock.", always=True)
_SIZE = _column("size_bytes", _LONG, "Bytes of the message.", v1="size")

MESSAGES: Final = _columns(
    _of_row("node", always=True),
    _of_row("seq", _LONG, always=True),
    _column("event", _TEXT, "submitted, received, forwarded or joined.", always=True),
    _AT,
    _of_row("message_id"),
    _of_row("ref_to"),
    _of_row("terms_id"),
    _of_row("peer"),
    _of_row("channel"),
    _of_row("epoch", _LONG),
    _of_row("sequence_number", _LONG),
    _of_row("hop", _LONG),
    _of_row("digest"),
    _SIZE,
    *_HEADER,
    _column("time_to_live_at", _TIME, "TimeToLive: when the message expires.", v1="time_to_live"),
    _column("best_effort", _FLAG, "Whether nothing more was promised than to send it."),
    _column("signature", _TEXT, "Of what was received: verified, partial or none."),
    *_SPLIT,
)
"""A message becomes known to a node: it was submitted, received, forwarded or joined there."""

ATTEMPTS: Final = _columns(
    _of_row("node", always=True),
    _of_row("seq", _LONG, always=True),
    _column(
        "event",
        _TEXT,
        "A transmission began, was refused (nothing arrived), or its end is unknown.",
        always=True,
    ),
    _AT,
    _of_row("message_id"),
    _of_row("attempt", _LONG),
    _of_row("transport"),
    _of_row("peer"),
    _of_row("hop", _LONG),
    _of_row("channel"),
    _of_row("epoch", _LONG),
    _of_row("sequence_number", _LONG),
    _column("reason", _TEXT, "Why it failed."),
)
"""A transmission `began`, or was `refused` (nothing arrived), or its end is `unknown`."""

HOPS: Final = _columns(
    _of_row("node", always=True),
    _of_row("seq", _LONG, always=True),
    _column(
        "event",
        _TEXT,
        "forwarded: the node answers for the next hop; passed_on: it promised nothing.",
        always=True,
    ),
    _AT,
    _of_row("message_id"),
    _of_row("ref_to"),
    _of_row("hop", _LONG),
    _column("peer", _TEXT, "The next handler on its way."),
    _of_row("terms_id"),
    _column("channel", _TEXT, "The channel that it came on."),
    _of_row("epoch", _LONG),
    _of_row("sequence_number", _LONG),
    _column("onward_channel", _TEXT, "The channel that it goes on in."),
    _column("from_party", _TEXT, "The From Party."),
    _column("to_party", _TEXT, "The To Party."),
    _column("time_to_live_at", _TIME, "TimeToLive: when the message expires."),
)
"""An intermediary sends a message on."""

STORED_MESSAGES: Final = _columns(
    _column("position", _LONG, "Position of the row in the store.", always=True),
    _column("direction", _TEXT, "out or in.", always=True),
    _column("node", _TEXT, "Whose store it is.", always=True),
    _column("message_id", _TEXT, "MessageId.", always=True),
    _column("state", _TEXT, "Which state the message is in.", always=True),
    _column("peer", _TEXT, "The partner."),
    _of_row("terms_id"),
    _of_row("channel"),
    _of_row("epoch", _LONG),
    _of_row("sequence_number", _LONG),
    _column("attempts", _LONG, "Transmissions so far."),
    _column("since", _LONG, "Since when it is in that state, in microseconds.", always=True),
    *_HEADER,
    _column("timestamp", _LONG, "Timestamp of the header, in microseconds."),
    _of_row("ref_to"),
    _column("kind", _TEXT, "A user's message, an acknowledgement, an error and so on."),
    _of_row("digest"),
    _of_row("size", _LONG),
    *_SPLIT,
    _of_row("hop", _LONG),
)
"""`format("oncewire")`, table `messages`: what a store holds now, its state rows' facts."""


DOCUMENTS: Final = _columns(
    _column("node", _TEXT, "Whose store it is in.", always=True),
    _column("direction", _TEXT, "out or in.", always=True),
    _column("message_id", _TEXT, "MessageId; of what travelled in parts the SplitId.", always=True),
    _column("number", _INT, "Which document of its message; empty where nothing of it is kept."),
    _column("partner", _TEXT, "The other party."),
    _column("at", _TIME, "When it was submitted or received, or its parts joined.", always=True),
    _column("parts", _LONG, "Messages that it travels in."),
    _column("parts_here", _LONG, "Of those, the ones that were made or received here."),
    _column("media_type", _TEXT, "Its media type."),
    _column("file_name", _TEXT, "What its sender calls it."),
    _column("compression", _TEXT, "How it was compressed to travel; empty: not at all."),
    _column("size_bytes", _LONG, "Bytes of it that travelled, compressed ones where it was."),
    _column("document_bytes", _LONG, "Bytes of the document itself."),
    _column("sha256_announced", _TEXT, "SHA-256 of what was submitted or accepted."),
    _column("sha256_stored", _TEXT, "SHA-256 of what the store has, joined and decompressed."),
    _column(
        "verdict",
        _TEXT,
        "whole, altered, missing, removed, parts_missing, waiting (to be joined), given_up, or "
        "closed: its bytes are encrypted, or not made yet.",
        always=True,
    ),
    _column("problem", _TEXT, "Why it is not whole, in words."),
    _column("checked_at", _TIME, "When the store was read.", always=True),
)
"""The documents that parties sent and received, held against the bytes in their stores."""

DOCUMENTS_WITH_DATA: Final = StructType(
    [
        *DOCUMENTS.fields,
        _column("data", BinaryType(), "Its bytes, if it is whole and not too large."),
    ]
)


SILVER: Final = {
    "context": JOURNAL,
    "boots": BOOTS,
    "split_rows": SPLIT_ROWS,
    "messages": MESSAGES,
    "attempts": ATTEMPTS,
    "hops": HOPS,
}
"""The tables that are made of single rows of the journal: a range of it makes a range of each."""


# --- gold: what it tells us -------------------------------------------------------------------

FINDING: Final = _columns(
    _column("predicate", _TEXT, "Which promise: S1 to S15, L1, L3, or a name; journal: the book."),
    _column("kind", _TEXT, "What is wrong: lost, twice, out_of_order, altered and so on."),
    _column("message_id", _TEXT, "The message that it is about."),
    _column("channel", _TEXT, "The channel that it is about."),
    _column("node", _TEXT, "The node that it is about."),
    _column("sentence", _TEXT, "What is wrong, in words."),
)
"""One violation, in the words of `oncewire.journal.predicates.context`."""

VIOLATIONS: Final = FINDING

FINDINGS_OF: Final = StructType(
    [*FINDING.fields, _column("of", _TEXT, "The message or channel whose rows showed it.")]
)
"""Findings with the message or channel whose rows showed them, which is not always the one that
they are about: it is what they are replaced by when those rows are folded again."""


def _when(name: str, what: str, whose: str) -> StructField:
    return _column(name, _TIME, f"When {what}, by the {whose}'s clock.")


_OF_OUTCOMES: Final = {
    "message_id": _column("message_id", _TEXT, "MessageId.", always=True),
    "outcome": _column(
        "outcome",
        _TEXT,
        "delivered, not_delivered, unknown or in_flight; sent where nothing more was promised.",
    ),
    "reason": _column("reason", _TEXT, "One word why."),
    "reliable": _column("reliable", _FLAG, "Whether delivery was promised."),
    "attempts": _column("attempts", _LONG, "Transmissions, the first one included."),
    "resends": _column("resends", _LONG, "Transmissions after the first."),
    "duplicates_stopped": _column(
        "duplicates_stopped", _LONG, "Copies that were recognised and not handed over."
    ),
    "handed_over": _column(
        "handed_over_count", _LONG, "How often an application was given it.", v1="handed_over"
    ),
    "confirmed": _column(
        "confirmed_count", _LONG, "How often an application confirmed it.", v1="confirmed"
    ),
    "late_ack": _column("late_ack", _FLAG, "Whether it was acknowledged after it had failed."),
    "notified": _column("notified", _FLAG, "Whether its sender was told of its failure."),
    "submitted_at": _when("submitted_at", "it was submitted", "sender"),
    "first_sent_at": _when("first_sent_at", "its first transmission began", "sender"),
    "acknowledged_at": _when("acknowledged_at", "its acknowledgement came", "sender"),
    "failed_at": _when("failed_at", "it failed", "sender"),
    "received_at": _when("received_at", "it was received", "receiver"),
    "handed_over_at": _when("handed_over_at", "an application was given it", "receiver"),
    "confirmed_at": _when("confirmed_at", "an application confirmed it", "receiver"),
    "latency": _column(
        "latency_us", _LONG, "Microseconds from submission to acknowledgement.", v1="latency"
    ),
    "sender": _column("sender", _TEXT, "The node that sent it."),
    "receiver": _column("receiver", _TEXT, "The node that received it."),
    "terms_id": _of_row("terms_id"),
    "channel": _of_row("channel"),
    "epoch": _of_row("epoch", _LONG),
    "sequence_number": _of_row("sequence_number", _LONG),
    "digest": _of_row("digest"),
    "size": _SIZE,
    "document": _column(
        "is_document", _FLAG, "Whether it is a document that travels in parts.", v1="document"
    ),
    "part_of": _column("part_of", _TEXT, "The document that it is a part of."),
    "refused_by": _column("refused_by", _TEXT, "Whose error says that it was not accepted."),
    "refusal": _column("refusal", _TEXT, "What that error says."),
    "confirmed_by": _column("confirmed_by", _TEXT, "Who confirmed it by hand."),
    "given_up_by": _column("given_up_by", _TEXT, "Who gave it up where it had arrived."),
    "cpa_id": _column("cpa_id", _TEXT, "CPAId: which agreement the header names.", v1=None),
    "conversation_id": _column("conversation_id", _TEXT, "ConversationId.", v1=None),
    "service": _column("service", _TEXT, "Service.", v1=None),
    "action": _column("action", _TEXT, "Action.", v1=None),
}
"""The column of each fact of an outcome."""

OUTCOME: Final = StructType([_OF_OUTCOMES[name] for name in MessageOutcome._fields])
"""`oncewire.journal.outcome.MessageOutcome`, field by field."""

LEDGER: Final = StructType(
    [
        *OUTCOME.fields,
        _column(
            "verdict",
            _TEXT,
            "The outcome, or the gravest violation: lost, twice, out_of_order, altered and so on.",
            always=True,
        ),
        _column(
            "judgement",
            _TEXT,
            "judged; not_yet: what is missing may still come; in_doubt: rows are missing that may "
            "be its own.",
            always=True,
            v1="extent",
        ),
        _column("from_peer", _TEXT, "The party that the receiver has it from."),
        _column("to_peer", _TEXT, "The party that it was submitted for."),
        _column("closed_on", DateType(), "Day of the last thing that happened to it."),
        _column("findings", ArrayType(FINDING), "Every finding about it.", v1="violations"),
    ]
)
"""One row and one verdict for each message."""

SEQUENCE_GAPS: Final = _columns(
    _column("node", _TEXT, "The node whose journal shows it.", always=True),
    _column("channel", _TEXT, "The channel.", always=True),
    _of_row("epoch", _LONG),
    _column("side", _TEXT, "sending or receiving.", always=True),
    _column("first_missing", _LONG, "The first number that was passed over.", always=True),
    _column(
        "missing_count", _LONG, "How many numbers were passed over.", always=True, v1="missing"
    ),
    _column("after_message_id", _TEXT, "The message before the gap."),
    _column("before_message_id", _TEXT, "The message behind the gap."),
    _column("state", _TEXT, "never_given, missing, open (may still come) or skipped.", always=True),
)
"""Numbers that an epoch passed over, one row for each run of them."""


def _counted(name: str, comment: str, v1: str = "") -> StructField:
    return _column(name, _LONG, comment, always=True, v1=v1)


def _latency(share: int) -> StructField:
    return _column(
        f"latency_p{share}_us",
        _SHARE,
        f"Microseconds that {share} of 100 messages took at most: out until the acknowledgement, "
        "in until the application has it.",
        v1=f"latency_p{share}",
        v1_per=1_000_000,
    )


PARTNER_SERVICE: Final = _columns(
    _column("node", _TEXT, "Whose hour it is.", always=True),
    _column("direction", _TEXT, "out or in.", always=True),
    _column("partner", _TEXT, "The other party."),
    _column("hour", _TIME, "Beginning of the hour of submission (out) or arrival (in)."),
    _counted("messages", "Messages; a document is one, its parts are none."),
    _column("size_bytes", _LONG, "Bytes of all messages.", v1="bytes"),
    _counted("delivered_count", "Messages that were delivered.", "delivered"),
    _counted("not_delivered_count", "Messages that were not delivered.", "not_delivered"),
    _counted("unknown_count", "Messages sent and never acknowledged.", "unknown"),
    _counted("in_flight_count", "Messages that are under way.", "in_flight"),
    _counted("best_effort_count", "Messages sent with best effort.", "best_effort"),
    _counted("arrived_count", "Of those, the ones that were seen to arrive.", "arrived"),
    _counted("with_findings_count", "Messages and parts with a finding.", "violations"),
    _counted("resends", "Transmissions after the first."),
    _counted("duplicates_stopped", "Copies that were recognised and not handed over."),
    _counted("late_acks", "Messages acknowledged after they had failed."),
    _latency(50),
    _latency(95),
    _latency(99),
)
"""What a partner gets and gives, by the hour of submission (or arrival)."""

JUDGED: Final = _columns(
    _column("sender", _TEXT, "The node that sends."),
    _column("receiver", _TEXT, "The node that receives."),
    _column("partner", _TEXT, "The other party."),
    _column("channel", _TEXT, "The channel."),
    _of_row("terms_id"),
    _column(
        "through_at",
        _TIME,
        "Messages submitted before this are judged for what is missing; empty if books are closed.",
        v1="through",
    ),
    _column("clock", _TEXT, "Whose clock says so.", always=True),
    _counted("open_count", "Messages that are open.", "messages"),
    _counted("not_yet_count", "Of those, the ones that are not judged yet.", "not_yet"),
    _counted("in_doubt_count", "Of those, the ones whose rows may be missing.", "in_doubt"),
)
"""How far each channel was judged, by whose clock, and how many messages were not."""

RETENTION: Final = _columns(
    _column("node", _TEXT, "Whose store it is in.", always=True),
    _column("direction", _TEXT, "out or in.", always=True),
    _column("message_id", _TEXT, "MessageId."),
    _column("partner", _TEXT, "The other party."),
    _of_row("terms_id"),
    _SIZE,
    _column("keep_until_at", _TIME, "Until when it is kept at least, by its terms."),
    _column("removable", _FLAG, "Whether nothing that a journal tells keeps it.", always=True),
    _column("waits_for", _TEXT, "What it is kept for, in words; empty where it is removable."),
    _column("as_of_at", _TIME, "The instant that this is said of.", always=True),
)
"""Which messages may be removed from the stores that they are in."""

EVIDENCE: Final = _columns(
    _column("message_id", _TEXT, "MessageId.", always=True),
    _column("from_party", _TEXT, "The From Party."),
    _column("to_party", _TEXT, "The To Party."),
    _column("cpa_id", _TEXT, "CPAId: which agreement the header names."),
    _column("conversation_id", _TEXT, "ConversationId."),
    _column("sent_at", _TIME, "Timestamp of the message's header."),
    _column("document_digests", ArrayType(_TEXT), "SHA-256 of each document, in their order."),
    _column("ack_message_id", _TEXT, "MessageId of the acknowledgement."),
    _column("acknowledged_at", _TIME, "Timestamp of the acknowledgement's header."),
    _column("signer", _TEXT, "Subject of the certificate that signed for the message."),
    _column("signer_sha256", _TEXT, "SHA-256 of that certificate."),
    _column(
        "proven",
        _FLAG,
        "Whether the To Party's own key signed for exactly this message and its documents.",
        always=True,
    ),
    _column("problem", _TEXT, "Why it is not proven, in words."),
    _column("message_file", _TEXT, "Where the message was found."),
    _column("ack_file", _TEXT, "Where the acknowledgement was found."),
)
"""What the raw messages of an archive prove."""

RECONCILIATION: Final = _columns(
    _column("message_id", _TEXT, "MessageId.", always=True),
    _column("disagreement", _TEXT, "How the books differ.", always=True),
    _column("sender", _TEXT, "The node that sent it."),
    _column("receiver", _TEXT, "The node that should have received it."),
    _column("sender_says", _TEXT, "What the sender's book says."),
    _column("receiver_says", _TEXT, "What the receiver's book says."),
    _column("sender_proof", _TEXT, "Which proof the sender holds."),
    _column("receiver_proof", _TEXT, "Which proof the receiver holds."),
    _column("sentence", _TEXT, "How they differ, in words.", always=True),
)
"""Where two parties' books disagree about a message, and who holds which proof."""


CHANNEL_STATES: Final = StructType(
    [
        StructField("node", _TEXT, False),
        StructField("channel", _TEXT, False),
        StructField("seq", _LONG, False),
        StructField("code", _TEXT, False),
        StructField("state", BinaryType(), False),
    ]
)
"""How far the folds over each channel on each node have come, to go on from there."""


GOLD: Final = {
    "ledger_closed": LEDGER,
    "ledger_open": LEDGER,
    "open_rows": JOURNAL,
    "message_findings": FINDINGS_OF,
    "channel_findings": FINDINGS_OF,
    "document_findings": VIOLATIONS,
    "channel_states": CHANNEL_STATES,
    "channel_rows": JOURNAL,
    "sequence_gaps": SEQUENCE_GAPS,
    "partner_service": PARTNER_SERVICE,
    "violations": VIOLATIONS,
    "judged": JUDGED,
}
"""The tables that are made of what journals show, with their columns."""

BY_DAYS: Final = {"ledger_closed": "closed_on", "partner_service": "hour"}
"""Those of them that are changed day by day, and never one directory; the column that says when."""


# --- schemas in other forms -------------------------------------------------------------------


@cache
def _arrow(columns: str) -> pa.Schema:
    return to_arrow_schema(StructType.fromJson(json.loads(columns)), timezone="UTC")


def arrow(schema: StructType) -> pa.Schema:
    """The columns as an Arrow schema."""
    return _arrow(schema.json())


def footer(schema: StructType) -> dict[str, str]:
    """What the footer of a Parquet file says of its columns, so that Spark shows their comments and
    other readers of footers find them."""
    return {"org.apache.spark.sql.parquet.row.metadata": nullable(schema).json()}


def only(schema: StructType, names: list[str]) -> StructType:
    """Some columns of a table, in the table's order."""
    wanted = set(names)
    return StructType([field for field in schema.fields if field.name in wanted])


def nullable(schema: StructType) -> StructType:
    """The columns, each of them nullable: a reader of others' files cannot promise values."""
    return StructType(
        [
            StructField(column.name, column.dataType, True, _comment(column))
            for column in schema.fields
        ]
    )


def _comment(column: StructField) -> dict[str, Any]:
    return {COMMENT: column.metadata[COMMENT]} if COMMENT in column.metadata else {}


# --- the names of the first version -----------------------------------------------------------

V1: Final = "v1"


class Former(NamedTuple):
    """A column as the first version had it."""

    name: str
    column: str
    """Its name now."""
    per: int
    """How many of its unit now were one then."""

    @property
    def sql(self) -> str:
        """It, made of the column that it is now."""
        return f"{self.column}{f' / {self.per}' if self.per != 1 else ''} AS {self.name}"


def former(schema: StructType) -> list[Former]:
    """The columns that the first version had of a table."""
    return [
        Former(name, column.name, column.metadata.get(_V1_PER, 1))
        for column in schema.fields
        if (name := column.metadata.get(_V1, column.name)) is not None
    ]


def former_schema(schema: StructType) -> StructType:
    """A table as the first version had it."""
    return StructType(
        [
            StructField(each.name, schema[each.column].dataType, schema[each.column].nullable)
            for each in former(schema)
        ]
    )
