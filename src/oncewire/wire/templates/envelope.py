"""EnvelopeTemplate: an envelope that was accepted, with gaps, and the message that fills itself in.

Why its result is that of the full reader: the bytes around the gaps are the same, and what stands
in them is plain text, so every parser sees the same tree but for the text of those elements. What
a reader does with that text is to put it into the message and to check it, and those checks are
made here by the same constructors and rules. What depends on the bytes as such is their size, which
is compared, and how much markup there is, which is the same. That the message has each value where
this says is not believed but tried: a mould is kept only if the full reader comes to the same for
envelopes in which every gap holds another value, and in which all hold the same.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from oncewire.errors import EbxmlError, InvalidValue
from oncewire.message import (
    Acknowledgment,
    Dialect,
    Header,
    Message,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
)
from oncewire.message.form import Validation
from oncewire.message.ids import ID_LENGTH_MAX
from oncewire.wire import header
from oncewire.wire.ebms2 import writer as ebms2_rules
from oncewire.wire.header import HeaderReading
from oncewire.wire.limits import Limits, count_exactly, encoding_of
from oncewire.wire.parcel import Received
from oncewire.wire.refusal import ReadFault
from oncewire.wire.templates.gaps import Digested, Field, Form, Gap, find_gaps, form_of

ENVELOPE_MAX = 8192
"""A larger one has more in it that differs, and would be held in memory."""

# Longer than any value that a form takes: the longest is a signature with a key of 8192 bits.
_VALUE_MAX = 1536


class EnvelopeTemplate:
    """What was learned of one envelope. But for `used`, when it helped last, it never changes, so
    that any thread may read with it."""

    __slots__ = (
        "_acks", "_base", "_defaults", "_first", "_gaps", "_header", "_hops",
        "_limits", "_order", "_references", "_rest", "used",
    )  # fmt: skip

    def __init__(
        self, envelope: bytes, gaps: list[tuple[Gap, Form]], base: HeaderReading, limits: Limits
    ) -> None:
        self._gaps = gaps
        self._base = base
        self._limits = limits
        self.used = 0
        starts = [0, *(gap.end for gap, _ in gaps)]
        ends = [*(gap.begin for gap, _ in gaps), len(envelope)]
        fixed = [envelope[start:end] for start, end in zip(starts, ends, strict=True)]
        self._first = fixed[0]
        # Of each gap: the byte that ends it, what must follow, and what may stand in it.
        self._rest = [
            (following[:1], following, form.read)
            for following, (_, form) in zip(fixed[1:], gaps, strict=True)
        ]
        self._place()

    def _place(self) -> None:
        """Where in the list of values each value of the message is found. A value that stands in
        no gap is put behind those that do, so that every one has its place."""
        message = self._base.message
        self._defaults: list[Any] = []
        places = {
            (gap.field, self._number_of(gap)): place for place, (gap, _) in enumerate(self._gaps)
        }

        def at(field: Field, default: object, number: int = 0) -> int:
            place = places.get((field, number))
            if place is None:
                self._defaults.append(default)
                place = len(self._gaps) + len(self._defaults) - 1
            return place

        said = message.header
        self._header = (
            at(Field.CONVERSATION_ID, said.conversation_id),
            at(Field.MESSAGE_ID, said.message_id),
            at(Field.TIMESTAMP, said.timestamp),
            at(Field.REF_TO_MESSAGE_ID, said.ref_to_message_id),
            at(Field.TIME_TO_LIVE, said.time_to_live),
        )
        self._order = places.get((Field.ORDER, 0))
        self._hops = [
            (hop, at(Field.HOP_TIMESTAMP, hop.timestamp, n), places.get((Field.HOP_NUMBER, n)))
            for n, hop in enumerate(message.routing)
        ]
        # The drafts acknowledge what MessageData refers to, unless the element itself says it.
        named = self._header[3] if message.dialect is not Dialect.EBMS2 else None
        digests = enumerate(digest for ack in message.acknowledgments for digest in ack.references)
        self._acks = [
            (
                ack,
                at(Field.ACK_TIMESTAMP, ack.timestamp, n),
                at(Field.ACK_REF_TO, ack.ref_to_message_id, n)
                if named is None or (Field.ACK_REF_TO, n) in places
                else named,
                [
                    Digested(
                        digest, places.get((Field.ACK_PART, m)), places.get((Field.ACK_DIGEST, m))
                    )
                    for m, digest in islice(digests, len(ack.references))
                ],
            )
            for n, ack in enumerate(message.acknowledgments)
        ]
        self._references = [
            (reference, places.get((Field.HREF, n))) for n, reference in enumerate(message.manifest)
        ]

    def _number_of(self, gap: Gap) -> int:
        return gap.number if gap.number >= 0 else len(self._base.message.routing) - 1

    def read(
        self, envelope: bytes, limits: Limits, payloads: tuple[Payload, ...] = ()
    ) -> HeaderReading | None:
        """What the full reader would say of the envelope; None where it must be asked."""
        if limits is not self._limits or len(envelope) > limits.header_bytes:
            return None
        values = self._values(envelope)
        if values is None:
            return None
        try:
            message = self._cast(values, payloads)
        except InvalidValue:
            return None
        # A number may be one that the rules between elements do not let pass.
        if self._order is not None and next(ebms2_rules.broken(message), None) is not None:
            return None
        base = self._base
        return HeaderReading(message, base.signed, list(base.notes), base.schema_problems)

    def _values(self, envelope: bytes) -> list[Any] | None:
        """What stands in the gaps, or None if the rest is not the same."""
        at = len(self._first)
        if not envelope.startswith(self._first):
            return None
        values: list[Any] = []
        for mark, following, value_of in self._rest:
            end = envelope.find(mark, at, at + _VALUE_MAX)
            if end < 0 or not envelope.startswith(following, end):
                return None
            value = value_of(envelope[at:end])
            if value is None:
                return None
            values.append(value)
            at = end + len(following)
        if at != len(envelope):
            return None
        values += self._defaults
        return values

    def _cast(self, values: list[Any], payloads: tuple[Payload, ...]) -> Message:
        base = self._base.message
        routing, order, answers, manifest = (
            base.routing, base.order, base.acknowledgments, base.manifest
        )  # fmt: skip
        if self._order is not None and order is not None:
            order = SequenceNumber(values[self._order], order.status)
        if routing:
            routing = tuple([_hop(hop, values, at, number) for hop, at, number in self._hops])
        if answers:
            answers = tuple(
                [_ack(ack, values, at, ref, digests) for ack, at, ref, digests in self._acks]
            )
        if manifest:
            manifest = tuple([_reference(one, values, at) for one, at in self._references])
        return Message(
            base.dialect,
            base.kind,
            self._cast_header(values),
            routing,
            order,
            base.ack_requested,
            answers,
            base.error_list,
            base.status_request,
            base.status_response,
            manifest,
            payloads,
        )

    def _cast_header(self, values: list[Any]) -> Header:
        said = self._base.message.header
        conversation_id, message_id, timestamp, ref_to, time_to_live = self._header
        return Header(
            said.from_party,
            said.to_party,
            said.cpa_id,
            values[conversation_id],
            said.service,
            said.action,
            values[message_id],
            values[timestamp],
            values[ref_to],
            values[time_to_live],
            said.semantics,
            said.duplicate_elimination,
            said.delivery_receipt_requested,
            said.sync_reply,
            said.sync_reply_as_agreed,
            said.split,
            said.descriptions,
            said.foreign,
        )

    def holds(self, piece: bytes) -> bool:
        """Whether some bytes stand between two gaps, so that every such envelope has them."""
        return any(piece in fixed for fixed in (self._first, *(rest[1] for rest in self._rest)))

    def filled(self, *, alike: bool) -> bytes:
        """The envelope with other values in its gaps: all of a kind alike, or every one another."""
        pieces = [self._first]
        for number, ((_, form), (_, following, _)) in enumerate(
            zip(self._gaps, self._rest, strict=True), start=1
        ):
            pieces += (form.example(1 if alike else number).encode("ascii"), following)
        return b"".join(pieces)


def _hop(
    hop: RoutingHeader, values: list[Any], timestamp: int, number: int | None
) -> RoutingHeader:
    sequence = hop.sequence
    if number is not None and sequence is not None:
        sequence = SequenceNumber(values[number], sequence.status)
    return RoutingHeader(
        hop.sender_uri,
        hop.receiver_uri,
        hop.sender_id,
        hop.receiver_id,
        values[timestamp],
        hop.error_uri,
        hop.ack_requested,
        hop.method,
        sequence,
        hop.msh_id,
    )


def _ack(
    ack: Acknowledgment, values: list[Any], timestamp: int, ref_to: int, digests: list[Digested]
) -> Acknowledgment:
    return Acknowledgment(
        values[timestamp],
        values[ref_to],
        ack.from_party,
        ack.actor,
        ack.signed,
        ack.type,
        tuple([digest.cast(values) for digest in digests]),
    )


def _reference(reference: Reference, values: list[Any], href: int | None) -> Reference:
    if href is None:
        return reference
    return Reference(
        values[href],
        reference.role,
        reference.id,
        reference.schemas,
        reference.descriptions,
        reference.compression,
        reference.foreign,
        reference.stretch,
    )


def learned(
    envelope: bytes, charset: str | None, limits: Limits, validation: Validation
) -> EnvelopeTemplate | None:
    """The mould of an envelope; None where the full reader refuses it, or none can be made."""
    if len(envelope) > ENVELOPE_MAX or envelope[:1] != b"<":
        return None
    # A tighter bound than that of all ids is looked at by the full reader.
    if limits.id_length < ID_LENGTH_MAX:
        return None
    if encoding_of(envelope, charset)[0] not in ("utf-8", "utf8"):
        return None
    try:
        base = header.read(envelope, charset, limits, validation)
        # The limits may count another envelope of this form exactly, where they only estimated
        # this one: it must pass either way.
        count_exactly(envelope, None, limits)
    except (ReadFault, EbxmlError):
        return None
    gaps = _formed(envelope, base.message)
    fields = {gap.field for gap, _ in gaps}
    # No other envelope would have the same id, or the same signature.
    if Field.MESSAGE_ID not in fields or (base.signed and Field.SIGNATURE_VALUE not in fields):
        return None
    mould = EnvelopeTemplate(envelope, gaps, base, limits)
    trials = (envelope, mould.filled(alike=False), mould.filled(alike=True))
    is_sound = all(_agrees(mould, trial, charset, limits, validation) for trial in trials)
    return mould if is_sound else None


def _formed(envelope: bytes, message: Message) -> list[tuple[Gap, Form]]:
    formed = []
    for gap in find_gaps(envelope, message.dialect):
        form = form_of(gap.field, envelope[gap.begin : gap.end])
        order = message.order
        # A reset has one number alone (§9.1.1).
        restarts = order is not None and order.status is SequenceStatus.RESET
        if form is not None and not (gap.field is Field.ORDER and restarts):
            formed.append((gap, form))
    return formed


def _agrees(
    mould: EnvelopeTemplate,
    envelope: bytes,
    charset: str | None,
    limits: Limits,
    validation: Validation,
) -> bool:
    try:
        return mould.read(envelope, limits) == header.read(envelope, charset, limits, validation)
    except ReadFault:
        return False


# Moulds: the bounded table of what was learned, and which of it an envelope is tried with.
#
# A mould is learned of what a partner sent and the handler believed, and each partner has a few
# places of his own: no stranger takes one, and no partner another's. Poisoning it is impossible by
# construction, for a mould says what the full reader says or nothing (`mould`).


MOULDS_MAX = 4096
"""Of all partners together; each has up to `ENVELOPE_MAX` bytes."""

OWNER_MAX = 16
"""Of one partner: his requests, his answers, and the acknowledgements of both, a few times over."""

# From the first party to the agreement's name: whose message it is, in every dialect.
_PARTIES, _AGREEMENT = b"PartyI", b"PAId"
_MARK_MAX = 2048

_Mark = tuple[bytes, str | None, Validation]


class EnvelopeTemplates:
    """What was learned so far. Reading changes nothing but counts, so any thread may read; learn
    in one thread alone."""

    def __init__(self, most: int = MOULDS_MAX, of_one: int = OWNER_MAX) -> None:
        self._most = most
        self._of_one = of_one
        # Tuples, which are exchanged whole: whoever reads meanwhile sees the one or the other.
        self._by_mark: dict[_Mark, tuple[EnvelopeTemplate, ...]] = {}
        self._owned: dict[str, dict[EnvelopeTemplate, _Mark]] = {}
        # Of each partner: how many messages of his could have been learned from.
        self._offered: dict[str, int] = {}
        # How many headers were read by a mould, and how many had to be parsed.
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return sum(map(len, self._owned.values()))

    def read(
        self,
        envelope: bytes,
        charset: str | None,
        limits: Limits,
        validation: Validation,
        payloads: tuple[Payload, ...] = (),
    ) -> HeaderReading | None:
        """What the full reader would say of the envelope; None where it must be asked."""
        for mould in self._by_mark.get((_mark_of(envelope), charset, validation), ()):
            reading = mould.read(envelope, limits, payloads)
            if reading is not None:
                self.hits += 1
                mould.used = self.hits
                return reading
        self.misses += 1
        return None

    def learn(
        self,
        received: Received,
        owner: str,
        limits: Limits,
        validation: Validation = Validation.REPORT,
    ) -> None:
        """Learn of a message that was read and that `owner` has proved to be his own."""
        if not received.moulded:
            self.learn_of(received.envelope, received.charset, owner, limits, validation)

    def learn_of(
        self,
        envelope: bytes,
        charset: str | None,
        owner: str,
        limits: Limits,
        validation: Validation,
    ) -> None:
        """The same of an envelope that no mould has read.

        Making a mould costs some full readings. So it is done for the first, the second, the
        fourth envelope and so on: who never sends alike costs little.
        """
        offered = self._offered[owner] = self._offered.get(owner, 0) + 1
        if offered & (offered - 1):
            return
        mould = learned(envelope, charset, limits, validation)
        mark = _mark_of(envelope), charset, validation
        # What differs must not be what it is found by.
        if mould is None or not mark[0] or not mould.holds(mark[0]):
            return
        owned = self._owned.setdefault(owner, {})
        if len(owned) >= self._of_one:
            self._forget(owner, min(owned, key=_last_used))
        elif len(self) >= self._most:
            self._forget_oldest()
        mould.used = self.hits
        self._owned.setdefault(owner, {})[mould] = mark
        self._by_mark[mark] = (*self._by_mark.get(mark, ()), mould)

    def _forget_oldest(self) -> None:
        everyone = ((owner, mould) for owner, owned in self._owned.items() for mould in owned)
        self._forget(*min(everyone, key=lambda each: _last_used(each[1])))

    def _forget(self, owner: str, mould: EnvelopeTemplate) -> None:
        mark = self._owned[owner].pop(mould)
        if not self._owned[owner]:
            del self._owned[owner]
        left = tuple(other for other in self._by_mark[mark] if other is not mould)
        if left:
            self._by_mark[mark] = left
        else:
            del self._by_mark[mark]


def _last_used(mould: EnvelopeTemplate) -> int:
    return mould.used


def _mark_of(envelope: bytes) -> bytes:
    """The bytes of an envelope that say whose it is; empty where they are not found."""
    begin = envelope.find(_PARTIES)
    end = envelope.find(_AGREEMENT, begin, begin + _MARK_MAX) if begin >= 0 else -1
    return envelope[begin:end] if end >= 0 else b""
