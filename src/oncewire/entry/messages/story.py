"""What is known of a message: why it is where it is in one sentence, every step that it took, where
the time went, and its parties, state, number, times, size, documents and hops."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from oncewire.entry.messages.outlook import held_for, outlook, resolving
from oncewire.entry.messages.stored import documents_of
from oncewire.entry.messages.timing import Timing, timing_of
from oncewire.errors import OncewireError, UnknownMessage
from oncewire.handler.runtime.operate import can_resume
from oncewire.journal import trace
from oncewire.journal.history import agreement_of, explain, ladder, passes_of, trail
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
from oncewire.store.records import MessageFacts, StoredIncoming, StoredOutgoing
from oncewire.store.search import TAKEN_OVER, listed_state

if TYPE_CHECKING:
    from oncewire.entry.party.names import Names
    from oncewire.entry.party.settings import Settings

ENDS = 60
"""Of the rows about one message, so many are read from the beginning and as many from the end."""

LEFT_OUT = "left_out"
"""The kind of the step that stands for those between."""

_RECEIVING = {
    trace.RECEIVED, trace.DUPLICATE, trace.REFUSED, trace.SKIPPED, trace.WARNING_SENT,
    trace.ACK_SENT, trace.HANDED_OVER, trace.CONFIRMED, trace.JOINED,
}  # fmt: skip
_EITHER = {trace.INCIDENT, trace.RESOLVED, trace.ABANDONED}


class StoryStep(Struct, frozen=True):
    """One step.

    `at`: when, in microseconds since 1970. `node`: at which handler.
    `direction`: `in`, `out` or `here`. `peer`: with whom. `what`: what it was.
    `kind`: the kind of journal row; `left_out` stands for many that are not told.
    `seq`: its position in the journal of that handler.
    `ref_to`: the MessageId of the signal that it is about, if it is about one.
    """

    at: Instant
    node: str
    direction: str
    peer: str
    what: str
    kind: str = ""
    seq: int = 0
    ref_to: str = ""


class Story(Struct, frozen=True):
    """What became of a message.

    `message_id`, `cpa_id`: its MessageId, and the agreement that it is under.
    `why`: why it is where it is, in one sentence.
    `steps`: the first and the last steps that it took. `next`: commands that help it on.
    `elsewhere`: the handlers of `console.with` whose journals were read too.
    `left_out`: how many steps between the first and the last are not told.
    `timing`: how long it took and where the time went, while its state is kept.
    """

    message_id: str
    why: str
    cpa_id: str
    steps: tuple[StoryStep, ...]
    next: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    left_out: int = 0
    timing: Timing | None = None


class Kept(Struct, frozen=True):
    """What our own store has of a message: the one that was sent, or the one that arrived, and the
    first and the last rows about it."""

    sent: StoredOutgoing | None
    arrived: StoredIncoming | None
    rows: list[Row]
    left_out: int
    # Whether another message has the same id, in the other direction.
    shared: bool

    @property
    def direction(self) -> str:
        """`out`, `in`, or empty: its state is not kept any more."""
        return "out" if self.sent is not None else "in" if self.arrived is not None else ""


def kept_of(reader: Reader, message_id: str, direction: str = "") -> Kept:
    """What is kept of a message; `direction`: which one, where two of this id are."""
    rows, between = reader.journal_ends(message_id, ENDS)
    sent, arrived = reader.outgoing(message_id), next(iter(reader.incoming(message_id)), None)
    # A hub has one message in both directions.
    shared = sent is not None and arrived is not None and sent.relayed_from is None
    if shared:
        inward = direction == "in"
        rows = of_direction(rows, inward=inward)
        sent, arrived = (None, arrived) if inward else (sent, None)
    elif sent is not None:
        arrived = None
    return Kept(sent, arrived, rows, between, shared)


def of_direction(rows: Iterable[Row], *, inward: bool) -> list[Row]:
    """Of the rows of one node those about what arrived there, or about what it sent."""
    return [row for row in rows if row.kind in _EITHER or (row.kind in _RECEIVING) is inward]


def story_of(
    reader: Reader,
    names: Names,
    message_id: str,
    now: Instant,
    settings: Settings | None,
    direction: str = "",
) -> Story:
    """The story as our own store tells it; UnknownMessage where it has no row of it."""
    kept = kept_of(reader, message_id, direction)
    if not kept.rows:
        raise UnknownMessage(
            f"there is no message {message_id[:255]}",
            remedy="give its whole MessageId; `find` finds it by any 8 characters of it",
        )
    steps = resolving(reader, message_id, now, "")
    then, others = "", list[Path]()
    if settings is not None:
        others = [settings.path(Path(folder)) for folder in settings.console.with_]
        then = "" if kept.arrived is not None else outlook(reader, message_id, now, settings)
    held = "" if kept.arrived is None else held_for(reader, kept.arrived)
    copies = copies_of(reader, message_id) if kept.left_out else None
    there = list(_elsewhere(message_id, others))
    if kept.shared:
        inward = kept.arrived is not None
        there = [
            (name, party, of_direction(rows, inward=not inward)) for name, party, rows in there
        ]
    try:
        told = [*kept.rows, *(row for _, _, found in there for row in found)]
        story = tell(message_id, told, names, then, steps, copies)
    except Exception:  # noqa: BLE001 - the files of others may say anything
        there, story = [], tell(message_id, kept.rows, names, then, steps, copies)
    # A hub is no partner of ours, and its folder says what it is called.
    called = {party_id: name for name, party_id, _ in there}
    party = _party(kept)
    if party:
        called.setdefault(party, names(party, story.cpa_id))
    named = [_named(step, called) for step in story.steps]
    # When a hub first sent it on, as the journals of others have it; 0: none has it.
    sent = (row.at for *_, rows in there for row in rows if row.kind == trace.SENT)
    sent_on = min(sent, default=0)
    return replace(
        story,
        why=_with_names(story.why + held, called),
        steps=tuple(_with_gap(named, kept)),
        elsewhere=tuple(name for name, _, _ in there),
        left_out=kept.left_out,
        timing=time_of(reader, names, kept, now, called, sent_on),
    )


def refused_words(message_id: str, told: tuple[int, Instant, str], place: str = "") -> str:
    """What is said of a message that the application refuses: how often, when last, and why."""
    count, at, raised = told
    often = "once" if count == 1 else f"{count} times"
    return (
        f" The application refused it {often}, the last time at {moment(at)}: {raised}. Mend the "
        "application: it is offered it until it takes it; what it can never take "
        f"`oncewire abandon {quote(message_id)}{place}` gives up."
    )


def _party(kept: Kept) -> str:
    """The PartyId of the other side; empty: it is not kept."""
    if kept.sent is not None:
        return kept.sent.facts.to_party
    return "" if kept.arrived is None else kept.arrived.facts.from_party


def _named(step: StoryStep, called: Mapping[str, str]) -> StoryStep:
    """A step with the names of parties in the place of their PartyIds."""
    what = _with_names(step.what, called)
    return replace(step, peer=called.get(step.peer, step.peer), what=what)


def _with_names(text: str, called: Mapping[str, str]) -> str:
    for party_id, name in called.items():
        # The key of a channel, as in a command, stays what it is.
        alone = rf"(?<![\w:>]){re.escape(party_id)}(?![\w>#])"
        text = re.sub(alone, name.replace("\\", r"\\"), text)
    return text


def copies_of(reader: Reader, message_id: str) -> int:
    """How many copies of it were stopped."""
    mark = reader.journal_marks(message_id).get(trace.DUPLICATE)
    return 0 if mark is None else mark.count


def _with_gap(steps: Sequence[StoryStep], kept: Kept) -> Iterator[StoryStep]:
    """The steps, with one in the place of those that are left out."""
    if not kept.left_out or len(kept.rows) <= ENDS:
        yield from steps
        return
    node, behind = kept.rows[0].node, kept.rows[ENDS].seq
    told = False
    for step in steps:
        if not told and step.node == node and step.seq >= behind:
            told = True
            what = f"{kept.left_out:,} steps in between are left out"
            yield StoryStep(step.at, node, "here", "", what, LEFT_OUT)
        yield step


def time_of(
    reader: Reader,
    names: Names,
    kept: Kept,
    now: Instant,
    called: Mapping[str, str],
    onward: Instant = 0,
) -> Timing | None:
    """How long a message took, and where the time went; None where its state is not kept.
    `called`: the names of other parties, by their PartyIds. `onward`: when a hub sent it on."""
    stored = kept.sent or kept.arrived
    if stored is None:
        return None
    partner = names(_party(kept), stored.facts.cpa_id)
    return timing_of(reader, stored, kept.rows, partner, now, called, onward)


def _elsewhere(message_id: str, folders: Iterable[Path]) -> Iterator[tuple[str, str, list[Row]]]:
    """What the journals of other parties, whose folders are at hand, tell of a message, each with
    the name of its handler and its PartyId."""
    from oncewire.entry.party.settings import load
    from oncewire.store.sqlite.reader import SqliteReaders

    for folder in folders:
        # What is wrong with the files of others keeps nobody from our own story.
        with suppress(OncewireError):
            party = load(folder, environ={}).settings
            path = party.path(party.store.path)
            if path.is_file():
                with closing(SqliteReaders(path)) as readers, readers.reader() as reader:
                    rows, _ = reader.journal_ends(message_id, ENDS)
                # A folder tells of its own handler alone, and not of ours.
                own = [row for row in rows if row.node == party.party.name]
                yield party.party.name, party.party.party_id, own


def tell(
    message_id: str,
    rows: Sequence[Row],
    names: Names,
    then: str,
    steps: tuple[str, ...],
    copies: int | None = None,
) -> Story:
    """The story that rows tell, of any journals; `then`: what has to happen before it goes on.
    `copies`: how many were stopped, where not all rows are given."""
    cpa_id = agreement_of(rows)
    return Story(
        message_id,
        explain(rows, outlook=then, copies=copies),
        cpa_id,
        tuple(
            StoryStep(
                step.at,
                step.node,
                step.direction.value,
                names(step.peer, cpa_id) if step.peer else "",
                step.text,
                step.kind,
                step.seq,
                step.ref_to or "",
            )
            for step in ladder(rows)
        ),
        steps,
    )


# Details: what is known of one message beside its story, and what may be done about it.


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
    # What was joined of parts came as no message: the digest of its row is the document's.
    # Of a document that is under way by its parts, what is said of any message that left.
    left = parts is not None and parts.first_sent_at is not None
    known: dict[str, Any] = {
        "message_id": message_id,
        "outcome": TAKEN_OVER
        if kept.sent is not None and kept.sent.outgoing.taken_over
        else outcome.outcome.value,
        "reason": ("waiting" if left and outcome.reason == "queued" else outcome.reason),
        **_said(outcome, "refused_by", "refusal", "confirmed_by", "given_up_by"),
        **_stored(kept),
        **_parts(rows, parts),
        "attempts": _tried(rows, outcome, parts),
        **_said(outcome, "duplicates_stopped", "channel", "epoch", "sequence_number"),
        "submitted": moment(outcome.submitted_at),
        "first_sent": moment(_first_sent(outcome, parts)),
        **{
            name: moment(getattr(outcome, f"{name}_at"))
            for name in ("acknowledged", "failed", "received", "handed_over", "confirmed")
        },
        "size": outcome.size,
        "identity_digest": (
            None if outcome.document and outcome.sender is None else outcome.digest
        ),
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
        # Whether an incident of it is open.
        if state in FINAL_OUTGOING and any(
            incident.message_id == message_id for incident in reader.incidents()
        ):
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


def _parts(rows: list[Row], parts: Parts | None) -> dict[str, int]:
    """Of a document in parts: how many they are and, where it is sent from, how many arrived."""
    total = parts_total(rows)
    if total is None:
        return {}
    return {"parts": total} | ({} if parts is None else {"parts_acknowledged": parts.acknowledged})


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
        found[0] = dataclasses.replace(first, sent_at=sent_at, attempts=attempts, standing=standing)
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


def _said(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _header(facts: MessageFacts) -> dict[str, Any]:
    names = ("cpa_id", "conversation_id", "service", "action")
    return {
        "kind": facts.kind.value,
        "from": facts.from_party,
        "to": facts.to_party,
        **_said(facts, *names),
        "timestamp": moment(facts.timestamp),
        "ref_to": facts.ref_to,
    }
