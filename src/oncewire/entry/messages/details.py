"""Details: what is known of one message beside its story: parties, state, number, times, size,
documents, every hop, and what may be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oncewire.entry.messages.outlook import outlook
from oncewire.entry.messages.stored import documents_of
from oncewire.entry.messages.story import Kept, copies_of, kept_of
from oncewire.handler.runtime.operate import can_resume
from oncewire.journal.history import explain, passes_of, trail
from oncewire.journal.outcome import (
    PROXIED,
    MessageOutcome,
    Parts,
    fold_outcome,
    parts_of,
    parts_total,
)
from oncewire.journal.row import Row
from oncewire.message.instant import Instant, moment
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState
from oncewire.store.contract import Reader
from oncewire.store.records import MessageFacts
from oncewire.store.search import TAKEN_OVER, listed_state

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


class DocumentFacts(Struct, frozen=True):
    """One document of a message: its `file_name`, `media_type`, `size` in bytes and `sha256`."""

    file_name: str
    media_type: str
    size: int
    sha256: str


class HopFacts(Struct, frozen=True):
    """One hop of a message.

    `hop`: its number. `node`, `to`: from which handler to which. `sent`, `received`,
    `acknowledged`: when; empty: not yet, or not known. `attempts`: how often it was sent.
    `standing`: how it stands, in words.
    """

    hop: int
    node: str
    to: str
    sent: str
    attempts: int
    received: str
    acknowledged: str
    standing: str


class MessageDetails(Struct, frozen=True):
    """What is known of a message.

    `message_id`: its MessageId.
    `facts`: by name, as `oncewire show` has them; what is not known is None or empty.
    `why`: why it is where it is; empty: the journal has no row of it.
    `documents`: each of them. `trail`: each hop.
    `may`: the verbs that can be done to it now, such as resend, resume, abandon, hold, release.
    `resumes`: the channel that goes on with it, all of it, where it is resumed; empty: it alone.
    `unproved`: why there is no evidence of its receipt; empty: there is.
    """

    message_id: str
    facts: dict[str, Any]
    why: str = ""
    documents: tuple[DocumentFacts, ...] = ()
    trail: tuple[HopFacts, ...] = ()
    may: tuple[str, ...] = ()
    resumes: str = ""
    unproved: str = ""


def details_of(
    reader: Reader,
    message_id: str,
    now: Instant,
    settings: Settings | None,
    elsewhere: Sequence[Row] = (),
    place: str = "",
    direction: str = "",
) -> MessageDetails:
    """What our own store knows of a message; `elsewhere`: rows of other journals about it.
    `direction`: which one is meant, where two of this id are."""
    kept = kept_of(reader, message_id, direction)
    rows = kept.rows
    outcome = fold_outcome(rows)
    if outcome is None:
        return MessageDetails(message_id, {"message_id": message_id})
    if kept.left_out:
        outcome = outcome._replace(duplicates_stopped=copies_of(reader, message_id))
    parts = parts_of(rows, reader.journal_of)
    held = reader.on_hold(message_id)
    then = ""
    if settings is not None and kept.arrived is None:
        then = outlook(reader, message_id, now, settings, place)
    known: dict[str, Any] = {
        "message_id": message_id,
        "outcome": TAKEN_OVER
        if kept.sent is not None and kept.sent.outgoing.taken_over
        else outcome.outcome.value,
        "reason": _reason(outcome, parts),
        "refused_by": outcome.refused_by,
        "refusal": outcome.refusal,
        "confirmed_by": outcome.confirmed_by,
        "given_up_by": outcome.given_up_by,
        **_stored(kept),
        **_parts(rows, parts),
        "attempts": _tried(rows, outcome, parts),
        "duplicates_stopped": outcome.duplicates_stopped,
        "channel": outcome.channel,
        "epoch": outcome.epoch,
        "sequence_number": outcome.sequence_number,
        "submitted": moment(outcome.submitted_at),
        "first_sent": moment(_first_sent(outcome, parts)),
        "acknowledged": moment(outcome.acknowledged_at),
        "failed": moment(outcome.failed_at),
        "received": moment(outcome.received_at),
        "handed_over": moment(outcome.handed_over_at),
        "confirmed": moment(outcome.confirmed_at),
        "size": outcome.size,
        "identity_digest": _identity(outcome),
        "terms": outcome.terms_id,
        "legal_hold": held,
        "removed": moment(
            max((removed.removed_at for removed in reader.removed(message_id)), default=None)
        ),
    }
    return MessageDetails(
        message_id,
        known,
        explain(rows, outlook=then, copies=outcome.duplicates_stopped),
        tuple(DocumentFacts(*each) for each in documents_of(reader, message_id)),
        tuple(_hops([*rows, *elsewhere], parts)),
        tuple(_may(reader, message_id, now, kept, held=held)),
        _suspended(reader, kept),
        _unproved(reader, kept),
    )


def _suspended(reader: Reader, kept: Kept) -> str:
    """The channel of a message, if that stands still."""
    sent = kept.sent
    if sent is None or sent.outgoing.channel is None or sent.outgoing.state in FINAL_OUTGOING:
        return ""
    channel = reader.sending_channel(sent.outgoing.channel)
    return channel.key if channel is not None and channel.suspended else ""


def _unproved(reader: Reader, kept: Kept) -> str:
    """Why nothing proves its receipt."""
    if kept.sent is not None:
        sent = kept.sent.outgoing
        if reader.receipt(sent.message_id) is not None or reader.document("", sent.message_id):
            return ""
        if sent.state is OutgoingState.DELIVERED:
            return "its acknowledgement was not signed"
        return "no acknowledgement of it has come"
    if kept.arrived is not None and not kept.arrived.answered:
        return "it was not acknowledged from here"
    return "" if kept.arrived is not None else "its bytes are not kept any more"


def _may(reader: Reader, message_id: str, now: Instant, kept: Kept, *, held: bool) -> Iterable[str]:
    """What an operator may do to a message as it stands."""
    sent = kept.sent
    # What is decided by a MessageId is about the message that we sent, if there is one.
    arrived = [] if kept.arrived is None or kept.shared else reader.incoming(message_id)
    if sent is not None:
        state = sent.outgoing.state
        if state in (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN):
            if can_resume(reader, sent, now):
                yield "resend"
        elif state not in FINAL_OUTGOING:
            yield "resume"
            yield "abandon"
        if state in FINAL_OUTGOING and _called(reader, message_id):
            yield "abandon"
    waits = (IncomingState.HANDED_OVER, IncomingState.READY)
    if any(each.incoming.state in waits and each.incoming.hand_overs for each in arrived):
        yield "abandon"
    if any(each.incoming.state is IncomingState.HELD for each in arrived):
        yield "resume"
    if sent is not None or arrived:
        yield "release" if held else "hold"
    if not _unproved(reader, kept) and not kept.shared:
        yield "evidence"


def _called(reader: Reader, message_id: str) -> bool:
    """Whether an incident of it is open."""
    return any(incident.message_id == message_id for incident in reader.incidents())


def _parts(rows: list[Row], parts: Parts | None) -> dict[str, int]:
    """Of a document in parts: how many they are and, where it is sent from, how many arrived."""
    total = parts_total(rows)
    if total is None:
        return {}
    return {"parts": total} | ({} if parts is None else {"parts_acknowledged": parts.acknowledged})


def _identity(outcome: MessageOutcome) -> str | None:
    """What was joined of parts came as no message: the digest of its row is the document's."""
    return None if outcome.document and outcome.sender is None else outcome.digest


def _reason(outcome: MessageOutcome, parts: Parts | None) -> str:
    """Of a document that is under way by its parts, what is said of any message that left."""
    left = parts is not None and parts.first_sent_at is not None
    return "waiting" if left and outcome.reason == "queued" else outcome.reason


def _tried(rows: list[Row], outcome: MessageOutcome, parts: Parts | None) -> int | None:
    """How often it was sent, by its parts where those travel; only its sender knows. A hub that
    promised nothing knows how often it passed it on."""
    if outcome.reason == PROXIED:
        return passes_of(rows)
    if outcome.sender is None:
        return None
    return outcome.attempts + (0 if parts is None else parts.attempts)


def _first_sent(outcome: MessageOutcome, parts: Parts | None) -> Instant | None:
    if parts is None or parts.first_sent_at is None:
        return outcome.first_sent_at
    return parts.first_sent_at


def _hops(rows: Sequence[Row], parts: Parts | None) -> Iterable[HopFacts]:
    """Each hop. A document in parts leaves its sender by them: the first hop is theirs."""
    found = trail(rows)
    if found and parts is not None:
        first, sent_at = found[0], found[0].sent_at or parts.first_sent_at
        standing = str(parts) if first.acknowledged_at is None else f"{first.standing}, {parts}"
        attempts = first.attempts + parts.attempts
        found[0] = replace(first, sent_at=sent_at, attempts=attempts, standing=standing)
    for hop in found:
        yield HopFacts(
            *(hop.number, hop.node, hop.peer or "", moment(hop.sent_at), hop.attempts),
            *(moment(hop.received_at), moment(hop.acknowledged_at), hop.standing),
        )


def _stored(kept: Kept) -> dict[str, Any]:
    """What the state rows add, for as long as they are kept."""
    sent, arrived = kept.sent, kept.arrived
    if sent is not None:
        facts = {"direction": "out", "state": listed_state(sent.outgoing), **_header(sent.facts)}
        facts["next_attempt"] = moment(sent.outgoing.next_attempt_at)
        facts["expires"] = moment(sent.outgoing.expires_at)
        return facts
    if arrived is not None:
        facts = {"direction": "in", "state": arrived.incoming.state.value, **_header(arrived.facts)}
        facts["hand_overs"] = arrived.incoming.hand_overs
        facts["lease_until"] = moment(arrived.incoming.lease_ends)
        return facts
    return {}


def _header(facts: MessageFacts) -> dict[str, Any]:
    return {
        "kind": facts.kind.value,
        "from": facts.from_party,
        "to": facts.to_party,
        "cpa_id": facts.cpa_id,
        "conversation_id": facts.conversation_id,
        "service": facts.service,
        "action": facts.action,
        "timestamp": moment(facts.timestamp),
        "ref_to": facts.ref_to,
    }
