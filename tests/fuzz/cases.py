"""One fuzz case: a mutated message goes through everything that reads; only our errors come out."""

import functools
import random
from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from oncewire.errors import EbxmlError, OncewireError, SoapFault
from oncewire.wire import answers, codec, inspection, splice
from oncewire.wire.codec import Parcel, Reader, ReadFault, Received
from oncewire.wire.inspection import Capture, CaptureKind, open_capture
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.splice import with_envelope
from oncewire.wire.templates.envelope import EnvelopeTemplates
from tests.fuzz.mutations import mutated
from tests.wire import samples
from tests.wire.roots import read_fault


class Broken(AssertionError):
    """What must hold for any input did not."""


@dataclass
class Tally:
    """What the cases came to."""

    outcomes: Counter[str] = field(default_factory=Counter)
    # How many were read by what had been learned of the good ones.
    by_template: int = 0
    most_buffered: int = 0
    most_tags: int = 0

    def add(self, other: "Tally") -> None:
        self.outcomes.update(other.outcomes)
        self.by_template += other.by_template
        self.most_buffered = max(self.most_buffered, other.most_buffered)
        self.most_tags = max(self.most_tags, other.most_tags)


def chance_of(seed: int, number: int) -> random.Random:
    """Each case has its own generator, so that one case replays alone."""
    return random.Random(f"{seed}:{number}")


def data_of(seed: int, number: int, good: list[bytes]) -> bytes:
    """The bytes of a case."""
    chance = chance_of(seed, number)
    return mutated(chance, chance.choice(good))


def run(seed: int, number: int, good: list[bytes], tally: Tally) -> None:
    """Judge one case; anything but our own errors passes through and fails the run."""
    chance = chance_of(seed, number)
    data = mutated(chance, chance.choice(good))
    values = inspection.describe_bytes(data)
    if ("fault" in values) == ("dialect" in values or "messages" in values):
        raise Broken("a message is either shown or refused")
    read_fault(data)
    try:
        capture = open_capture(data)
    except ReadFault as fault:
        _check_fault(fault)
        tally.outcomes[f"refused: {_code(fault)}"] += 1
        return
    whole = _outcome(capture)
    _same_by_templates(capture, whole, good, tally)
    pieces = _in_pieces(capture.parcel, chance, tally)
    _same(whole, pieces)
    if isinstance(whole, ReadFault):
        _check_fault(whole)
        tally.outcomes[f"refused: {_code(whole)}"] += 1
    else:
        _use(whole, capture)
        tally.outcomes["read"] += 1
    _all_of_them(capture)


def _code(fault: ReadFault) -> str:
    error = fault.error
    return f"SOAP {error.faultcode}" if isinstance(error, SoapFault) else error.code


def _outcome(capture: Capture) -> Received | ReadFault:
    try:
        return codec.read(capture.parcel)
    except ReadFault as fault:
        return fault


@functools.lru_cache(maxsize=2)
def _learned(good: tuple[bytes, ...]) -> EnvelopeTemplates:
    """What there is to learn of the messages that mutations start from."""
    templates = EnvelopeTemplates()
    for number, data in enumerate(good):
        try:
            received = codec.read(open_capture(data).parcel)
        except ReadFault:
            continue
        templates.learn(received, f"partner {number}", DEFAULT_LIMITS)
    return templates


def _same_by_templates(
    capture: Capture, whole: Received | ReadFault, good: list[bytes], tally: Tally
) -> None:
    """What was learned of good messages changes nothing about what is read of any other."""
    try:
        again: Received | ReadFault = codec.read(capture.parcel, templates=_learned(tuple(good)))
    except ReadFault as fault:
        again = fault
    if isinstance(again, Received):
        tally.by_template += again.by_template
        if replace(again, by_template=False) != whole:
            raise Broken("another message when read by a template")
    elif _verdict(again) != _verdict(whole):
        raise Broken(f"read at once: {whole}; read with templates: {again}")


def _in_pieces(parcel: Parcel, chance: random.Random, tally: Tally) -> Received | ReadFault:
    # Small pieces are for small bodies: there are enough of those, and pieces cost time.
    size = chance.choice([1, 7, 100, 65_536] if len(parcel.body) < 3_000 else [50, 997, 8192])
    try:
        reader = Reader(parcel.content_type, parcel.headers)
    except ReadFault as fault:
        return fault
    try:
        for start in range(0, len(parcel.body), size):
            reader.feed(parcel.body[start : start + size])
        _, received = reader.finish()
    except ReadFault as fault:
        return fault
    finally:
        _check_work(reader, tally, size)
    return received


def _check_work(reader: Reader, tally: Tally, size: int) -> None:
    work, bounds = reader.work, DEFAULT_LIMITS
    allowed = max(bounds.header_bytes, bounds.before_root_bytes) + size + 512
    if work.buffered > allowed:
        raise Broken(f"{work.buffered} bytes were held")
    if work.parts > bounds.parts + 1:
        raise Broken(f"{work.parts} parts were opened")
    if work.tags > 2 * bounds.header_elements + 64:
        raise Broken(f"a tree of {work.tags} tags was visited")
    tally.most_buffered = max(tally.most_buffered, work.buffered)
    tally.most_tags = max(tally.most_tags, work.tags)


def _same(whole: Received | ReadFault, pieces: Received | ReadFault) -> None:
    """The short way and the long way to read must come to the same."""
    if isinstance(whole, ReadFault) or isinstance(pieces, ReadFault):
        if _verdict(whole) != _verdict(pieces):
            raise Broken(f"read at once: {whole}; read in pieces: {pieces}")
        return
    without = tuple(replace(one, data=None) for one in whole.message.payloads)
    if replace(whole.message, payloads=without) != pieces.message:
        raise Broken("another message when read in pieces")
    if (whole.envelope, whole.notes, whole.closed) != (
        pieces.envelope,
        pieces.notes,
        pieces.closed,
    ):
        raise Broken("other notes when read in pieces")


def _verdict(outcome: Received | ReadFault) -> object:
    """Code, place and facts; the words may depend on where the damage was noticed."""
    if isinstance(outcome, Received):
        return None
    places = [getattr(error, "location", "") for error in outcome.errors]
    return _code(outcome), places, outcome.known


def _check_fault(fault: ReadFault) -> None:
    for error in fault.errors:
        if not error.problem or len(error.problem) > 4096:
            raise Broken(f"an error without, or with endless words: {error!r}")
        if isinstance(error, EbxmlError) and not error.location:
            raise Broken(f"an error without a place: {error!r}")
    if fault.answerable:
        known = fault.known
        envelope = samples.envelope_for(
            known.dialect or samples.Dialect.EBMS2, own=samples.BETA, peer=samples.ALPHA
        )
        try:
            answer = answers.error_message_for(known, fault.ebxml_errors, envelope)
            codec.read(codec.write(answer, envelope.form))
        except ReadFault as own:
            raise Broken(f"our own answer is refused: {own}") from own


def _use(received: Received, capture: Capture) -> None:
    """What a handler does next must not fail in ways of its own."""
    message = received.message
    form = samples.form(message.dialect)
    envelope = samples.envelope_for(message.dialect, own=samples.BETA)
    try:
        answer = answers.acknowledgment_for(message, envelope)
        codec.read(codec.write(answer, form))
        forwarded = splice.next_hop(received.envelope, samples.NEXT_HOP, form, received.charset)
        if capture.kind is not CaptureKind.XML:
            codec.read(with_envelope(capture.parcel, forwarded))
        codec.read(codec.write(message, form))
    except OncewireError:
        # A tolerated oddity may be one that we refuse to write; it must say so, not crash.
        return


def _all_of_them(capture: Capture) -> None:
    try:
        codec.read_all(capture.parcel)
    except ReadFault:
        return
