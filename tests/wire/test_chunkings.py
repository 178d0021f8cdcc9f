"""However a body is cut on its way, it says the same: pieces against the whole, refusals too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import MimeProblem
from oncewire.message.envelope import Message, Payload
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture
from oncewire.wire.mime.multipart import decoder
from oncewire.wire.parcel import Parcel, ReadFault
from oncewire.wire.reader import HeaderRead, PayloadData, PayloadEnded, PayloadStarted, Reader
from tests.examples import examples
from tests.wire import samples
from tests.wire.samples import corpus_bytes, corpus_messages

ODD = Payload.of(
    "odd@x",
    "application/octet-stream",
    b"\r\n--almost\r\n--\n--=_\r\r\n= =3D\xff\x00" + bytes(range(256)) * 3 + b"\r",
)


def whole(parcel: Parcel) -> object:
    """What the reader of whole bodies says."""
    try:
        received = codec.read(parcel)
    except ReadFault as fault:
        return _refusal(fault)
    return received.message, received.envelope, received.signed, received.closed


def in_pieces(parcel: Parcel, cuts: list[int]) -> object:
    """What the pieces say, put together from what was told on the way."""
    told: dict[str, bytes] = {}
    current: list[bytes] = []
    headers = 0
    try:
        reader = Reader(parcel.content_type, parcel.headers)
        events = []
        for begin, end in zip([0, *cuts], [*cuts, len(parcel.body)], strict=True):
            events += reader.feed(parcel.body[begin:end])
        last, received = reader.finish()
        for event in (*events, *last):
            if isinstance(event, HeaderRead):
                headers += 1
            elif isinstance(event, PayloadStarted):
                # The header comes first, whatever stood first in the body.
                assert headers == 1
                current = []
            elif isinstance(event, PayloadData):
                current.append(event.data)
            elif isinstance(event, PayloadEnded):
                told[event.payload.content_id] = b"".join(current)
    except ReadFault as fault:
        return _refusal(fault)
    payloads = tuple(
        replace(payload, data=told[payload.content_id]) for payload in received.message.payloads
    )
    message = replace(received.message, payloads=payloads)
    return message, received.envelope, received.signed, received.closed


def _refusal(fault: ReadFault) -> object:
    return [(type(one), one.problem) for one in fault.errors], fault.known


def cuts_of(chance: random.Random, size: int) -> list[int]:
    """Anything from one piece to single bytes."""
    count = chance.choice((0, 1, 2, 5, 40, min(size, 400)))
    return sorted(chance.randint(0, size) for _ in range(count))


@settings(max_examples=examples(150), deadline=None)
@given(
    dialect=st.sampled_from(list(Dialect)),
    mail=st.booleans(),
    content=st.one_of(st.binary(max_size=2000), st.just(ODD.data or b"")),
    cut_from=st.integers(0, 2**32),
    damage=st.sampled_from(("", "cut", "flip", "lf")),
)
@example(dialect=Dialect.MS_09X, mail=True, content=bytes(13), cut_from=329, damage="flip")
def test_pieces_say_what_the_whole_says(
    dialect: Dialect, mail: bool, content: bytes, cut_from: int, damage: str
) -> None:
    chance = random.Random(cut_from)
    payloads = (Payload.of("doc@x", "text/plain", content), ODD)
    message: Message = replace(samples.order_message(dialect), payloads=payloads)
    parcel = codec.write(message, samples.form(dialect), mail=mail)
    body = parcel.body
    if damage == "cut":
        body = body[: chance.randint(0, len(body))]
    elif damage == "flip":
        at = chance.randrange(len(body))
        body = body[:at] + bytes([body[at] ^ (1 << chance.randrange(8))]) + body[at + 1 :]
    elif damage == "lf":
        body = body.replace(b"\r\n--", b"\n--")
    parcel = replace(parcel, body=body)
    assert in_pieces(parcel, cuts_of(chance, len(body))) == whole(parcel)


def test_every_message_of_the_corpus_says_the_same_in_any_pieces(corpus: Path) -> None:
    names = corpus_messages(corpus)
    assert len(names) > 20
    for number, name in enumerate(names):
        try:
            parcel = open_capture(corpus_bytes(corpus, name)).parcel
        except ReadFault:
            continue
        expected = whole(parcel)
        for seed in range(6):
            chance = random.Random(1000 * number + seed)
            assert in_pieces(parcel, cuts_of(chance, len(parcel.body))) == expected, (name, seed)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_single_bytes_are_enough(dialect: Dialect) -> None:
    parcel = samples.written(dialect, (ODD,))
    assert in_pieces(parcel, list(range(1, len(parcel.body)))) == whole(parcel)


@pytest.mark.parametrize("text", [b"QQ==QQ", b"QQ==QQ==", b"QQ=Q", b"QUJDR", b"Q!"])
def test_damaged_base64_is_damaged_in_any_pieces(text: bytes) -> None:
    """What goes on after its padding was taken where it came in one piece."""
    said = set()
    for cut in range(len(text) + 1):
        reading = decoder("base64")
        with pytest.raises(MimeProblem) as refused:
            reading.feed(text[:cut]) + reading.feed(text[cut:]) + reading.finish()
        said.add(refused.value.problem)
    assert said == {"base64 is damaged"}
