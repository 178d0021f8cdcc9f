"""Large documents: compress first, split only if it is still too large, join once.

(Slides, 'Transfer of Large Documents'.) The plan speaks of offsets and lengths only, so a
document of any size is planned without being read.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import DeliveryFailure, Inconsistent, InvalidValue, NotAllowed
from oncewire.message.envelope import SPLIT_TOTAL_MAX, Split
from oncewire.message.instant import Instant
from oncewire.protocol.notes import Acknowledged, Effect, Ignored, Resolve
from oncewire.protocol.sending import SenderStep, failure, note_of
from oncewire.protocol.states import FINAL_OUTGOING, Outgoing, OutgoingEvent, OutgoingState, Proof
from oncewire.protocol.terms import Terms

UNDER_WAY, UNDER_WAY_BYTES = 8, 16 * 1024 * 1024
"""Parts of one document that are under way at once, and about how many bytes of it: enough to fill
a line, few enough to leave room for other messages. They are made in one turn of the loop, which
all other work waits for."""


class Part(Struct, frozen=True, gc=False):
    """One part of a document: which bytes of which of its payloads travel in which message."""

    number: int
    # Which payload of the document, from 0.
    payload: int
    offset: int
    length: int


def is_document(sizes: tuple[int, ...], terms: Terms) -> bool:
    """Whether payloads of these sizes have to be compressed or split to be sent at all (BIG-1)."""
    return terms.max_size is not None and any(size > terms.max_size for size in sizes)


def parts_needed(sizes: tuple[int, ...], limit: int) -> int:
    """Into how many parts payloads of these (compressed) sizes are cut. A part never has bytes of
    two payloads, and an empty payload is a part too."""
    if any(size < 0 for size in sizes) or limit < 1:
        raise InvalidValue("a size is negative", remedy="give sizes in bytes")
    total = sum(max(1, -(-size // limit)) for size in sizes)
    if total > SPLIT_TOTAL_MAX:
        raise InvalidValue(
            f"a document of {sum(sizes):,} bytes needs {total:,} parts of at most {limit:,} bytes",
            remedy="agree on a larger MaxSize (payload.max_size)",
        )
    return total


FRAGMENTS_MAX = 900
"""Fragments that one Manifest names: a reader takes no more than a thousand elements beside each
other."""


def fragments_needed(sizes: tuple[int, ...], limit: int) -> int:
    """How many parts a document needs whose parts are all named by one message."""
    total = parts_needed(sizes, limit)
    if total > FRAGMENTS_MAX:
        raise InvalidValue(
            f"a document of {sum(sizes):,} bytes needs {total:,} fragments, and one message names "
            f"{FRAGMENTS_MAX} of them at most",
            remedy="agree on a larger MaxSize (payload.max_size), or send it as several documents",
        )
    return total


def part_size(terms: Terms, *, base64: bool = False) -> int:
    """Bytes of a document that one part has at most; base64 makes 78 of 57."""
    agreed = terms.max_size or 1
    return max(1, agreed * 57 // 78) if base64 else agreed


def parts_under_way(size: int) -> int:
    """How many parts of that size may be under way at once: one is sent while another is made."""
    return max(2, min(UNDER_WAY, UNDER_WAY_BYTES // size))


def nth_part(sizes: tuple[int, ...], limit: int, number: int) -> Part:
    """The part with that ordinal: they are numbered from 1 through all payloads."""
    before = 0
    for payload, size in enumerate(sizes):
        here = max(1, -(-size // limit))
        if number <= before + here:
            offset = (number - before - 1) * limit
            return Part(number, payload, offset, min(limit, size - offset))
        before += here
    raise InvalidValue(
        f"there is no part {number} of {before}", remedy="number the parts from 1 to Total"
    )


def part_id(split_id: str, number: int, total: int) -> str:
    """The MessageId of a part that is sent from here. It follows from the document's own, so that
    no crash between two parts gives one of them a second id."""
    return f"{number}-of-{total}.{split_id}"


ABOUT = (
    *("CPAId", "From", "Role of From", "To", "Role of To"),
    *("ConversationId", "Service", "Action", "RefToMessageId"),
)
"""What all parts of a document say alike: the application is given it as the document's own."""


class DocumentState(StrEnum):
    """Where a document stands at one of its ends."""

    OPEN = "open"  # parts are on their way
    JOINING = "joining"  # all parts are here, and it is being put together
    WHOLE = "whole"  # all parts were acknowledged; or it was put together, and is what was split
    FAILED = "failed"  # it will never be whole here


class SplitDocument(Struct, frozen=True, gc=False):
    """How far a document is at one of its ends: `sender` is empty where it is sent from."""

    sender: str
    split_id: str
    total: int
    terms_id: str
    begun_at: Instant
    state: DocumentState = DocumentState.OPEN
    # At its sender: how many parts were given to the stream.
    released: int = 0
    # First and last ordinal of each run of parts that are done: acknowledged, or stored.
    done: tuple[tuple[int, int], ...] = ()
    # At its receiver: bytes of the parts that are stored, and when the latest of them came.
    size: int = 0
    latest_at: Instant = 0
    # At its receiver, once all parts are there: its place in the order of delivery, and the part
    # that made it complete, whose acknowledgement waits until it is whole.
    position: int = 0
    last_part: str = ""
    channel: str | None = None
    # At its receiver: what the first part that came says of the document, in the order of `ABOUT`;
    # empty: a version noted it that did not look.
    about: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Sender and SplitId."""
        return self.sender, self.split_id

    @property
    def count(self) -> int:
        """How many parts are done."""
        return sum(last - first + 1 for first, last in self.done)

    @property
    def complete(self) -> bool:
        """Whether every part is done."""
        return self.count == self.total

    @property
    def under_way(self) -> int:
        """At its sender: parts that were released and are not done."""
        return self.released - self.count

    @property
    def missing(self) -> Iterator[int]:
        """Ordinals that are not done."""
        start = 1
        for first, last in self.done:
            yield from range(start, first)
            start = last + 1
        yield from range(start, self.total + 1)

    def has(self, number: int) -> bool:
        """Whether that part is done."""
        return any(first <= number <= last for first, last in self.done)

    def add(self, number: int, size: int = 0) -> SplitDocument:
        """Note a part as done; noting it twice is the same as once."""
        if self.has(number):
            return self
        runs: list[tuple[int, int]] = []
        for first, last in sorted((*self.done, (number, number))):
            if runs and runs[-1][1] + 1 == first:
                runs[-1] = (runs[-1][0], last)
            else:
                runs.append((first, last))
        return replace(self, done=tuple(runs), size=self.size + size)

    def drop(self, number: int) -> SplitDocument:
        """Note a part as not done, because its acknowledgement was taken back."""
        done = [run for run in self.done if not run[0] <= number <= run[1]]
        for first, last in self.done:
            if first <= number <= last:
                halves = ((first, number - 1), (number + 1, last))
                done += [(low, high) for low, high in halves if low <= high]
        return replace(self, done=tuple(sorted(done)))

    def moved(self, state: DocumentState) -> SplitDocument:
        """The document after a step; what is over stays over, but for a late acknowledgement."""
        if state not in _STEPS[self.state]:
            raise NotAllowed(
                f"a document that is {self.state.value} cannot become {state.value}",
                remedy="possible here: " + (", ".join(sorted(_STEPS[self.state])) or "nothing"),
            )
        return replace(self, state=state)


_D = DocumentState
UNFINISHED = frozenset({_D.OPEN, _D.JOINING})
"""States in which a document still waits for parts, or to be joined."""

_STEPS = {
    _D.OPEN: {_D.JOINING, _D.WHOLE, _D.FAILED},
    _D.JOINING: {_D.WHOLE, _D.FAILED},
    # At its sender: a hub may take its word back, and an acknowledgement may come late.
    _D.WHOLE: {_D.FAILED},
    _D.FAILED: {_D.WHOLE, _D.FAILED},
}


def check_part(
    known: SplitDocument | None, split: Split, about: tuple[str, ...] | None = None
) -> None:
    """Refuse a part that cannot belong to the document it names (BIG-4, BIG-5, BIG-6).

    `about`: what it says of the document, in the order of `ABOUT`."""
    if known is None:
        return
    if split.total != known.total:
        raise Inconsistent(
            f"part {split.number} says Total {split.total}, earlier parts {known.total}",
            location="//SplitNumber/@Total",
            remedy="give every part of a document the same Total",
        )
    if known.state is DocumentState.FAILED:
        raise DeliveryFailure(
            f"document {split.split_id} was given up: it is never put together",
            location="//SplitId",
            remedy="send the document again, under a SplitId of its own",
        )
    if known.has(split.number):
        raise Inconsistent(
            f"part {split.number} of document {split.split_id} came in two messages",
            location="//SplitNumber",
            remedy="give every document a SplitId of its own, and every part an ordinal",
        )
    for name, said, before in zip(ABOUT, about or (), known.about, strict=False):
        if said != before:
            raise Inconsistent(
                f"part {split.number} of document {split.split_id} says another {name} than the "
                "parts before it",
                location="//SplitId",
                remedy="give all parts of a document one header, but for their own ids",
            )


def parts_arrived(whole: Outgoing, proved_by: Proof | None) -> SenderStep:
    """Every part of a document of ours has arrived, and with the last of them the document."""
    late = whole.state in FINAL_OUTGOING
    delivered = whole.moved(
        OutgoingEvent.PARTS_ARRIVED,
        late=late,
        reason="acknowledged late" if late else "",
        notice_owed=False,
        proved_by=proved_by,
    )
    hop = proved_by is Proof.HOP
    what = Acknowledged("parts", late, hop=hop, split_id=delivered.message_id)
    return SenderStep(delivered, None, (note_of(what, delivered),))


def part_failed(whole: Outgoing, why: str, *, certain: bool) -> SenderStep:
    """A part will not arrive, or its arrival is unknown. `certain`: it will not, so the receiver
    cannot put the document together."""
    to = OutgoingState.NOT_DELIVERED if certain else OutgoingState.UNKNOWN
    failed = replace(whole, expires_at=None).failed(OutgoingEvent.PART_FAILED, to, why[:500])
    # What was heard of the message that names the parts, or by whom of other parts, stays true.
    failed = replace(failed, proved_by=whole.proved_by)
    effects: tuple[Effect, ...] = failure(failed, "part")
    if whole.state is OutgoingState.SUSPENDED:
        effects += (Resolve(whole.message_id),)
    return SenderStep(failed, None, effects)


def index_acknowledged(whole: Outgoing, proof: Proof, ack_id: str) -> SenderStep:
    """The message that names the parts has arrived, but not all of them have: the document is not
    delivered, until they are."""
    if proof is Proof.HOP and (whole.taken_back or whole.proved_by is Proof.TO_PARTY):
        return SenderStep(whole, None)
    problem = "the message that names the parts has arrived, but not all of them have"
    ignored = Ignored("acknowledgement", "DeliveryFailure", problem)
    kept = replace(whole, proved_by=proof)
    return SenderStep(kept, None, (note_of(ignored, whole, ref_to=ack_id),))


def index_stands(whole: Outgoing) -> Proof | None:
    """Who acknowledged the message that names the parts; None: it is not acknowledged."""
    disowned = whole.proved_by is Proof.HOP and whole.taken_back
    return whole.proved_by if whole.attempts and not disowned else None
