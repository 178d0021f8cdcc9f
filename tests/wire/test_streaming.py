"""Payloads of any size pass through reader and writer without being held."""

import hashlib
import io
import tracemalloc
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from oncewire.errors import InvalidValue
from oncewire.message.envelope import Payload
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.codec import Reader
from oncewire.wire.reader import PayloadData
from tests.wire import samples

MEGABYTE = 1_048_576
BUDGET = 64 * MEGABYTE


class Rope:
    """A payload that exists only while it is read."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.block = bytes(range(256)) * 256

    def read(self, size: int, /) -> bytes:
        take = min(size, self.left, len(self.block))
        self.left -= take
        return self.block[:take]


def _digest(size: int) -> str:
    digest, rope = hashlib.sha256(), Rope(size)
    while piece := rope.read(65_536):
        digest.update(piece)
    return digest.hexdigest()


def _through(size: int, dialect: Dialect, *, mail: bool) -> None:
    payload = Payload("big@x", "application/octet-stream", size, _digest(size))
    message = replace(samples.order_message(dialect), payloads=(payload,))
    tracemalloc.start()
    try:
        stream = codec.write_stream(
            message, samples.form(dialect), {"big@x": Rope(size)}, mail=mail
        )
        reader = Reader(stream.content_type, stream.headers)
        passed = written = 0
        for chunk in stream.chunks:
            written += len(chunk)
            for event in reader.feed(chunk):
                if isinstance(event, PayloadData):
                    passed += len(event.data)
        _, received = reader.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written == stream.size
    assert passed == size
    assert received.message.payloads[0].digest == payload.digest
    assert received.message.payloads[0].size == size
    assert peak < BUDGET
    # Far below the budget: what is held does not grow with the payload.
    assert peak < 4 * MEGABYTE
    assert reader.work.buffered < MEGABYTE


@pytest.mark.long
@pytest.mark.parametrize("mail", [False, True])
def test_64_megabytes_pass_through(mail: bool) -> None:
    _through(64 * MEGABYTE, Dialect.EBMS2, mail=mail)


@pytest.mark.soak
@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_gigabyte_passes_through(dialect: Dialect) -> None:
    _through(1024 * MEGABYTE, dialect, mail=False)


def _pieces() -> Iterator[bytes]:
    yield b"abc"
    yield b""
    yield b"def"


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("mail", [False, True])
def test_sources_of_every_kind_give_the_same_bytes(dialect: Dialect, mail: bool) -> None:
    payload = Payload.of("p@x", "a/b", b"abcdef")
    message = replace(samples.order_message(dialect), payloads=(payload,))
    spooled = replace(message, payloads=(replace(payload, data=None, spooled="somewhere"),))
    form = samples.form(dialect)
    expected = codec.write(message, form, mail=mail)
    for source in (b"abcdef", io.BytesIO(b"abcdef"), _pieces()):
        stream = codec.write_stream(spooled, form, {"p@x": source}, mail=mail)
        body = b"".join(stream.chunks)
        assert (stream.content_type, body) == (expected.content_type, expected.body)
        assert stream.size == len(body)


def test_a_source_that_changed_is_noticed() -> None:
    payload = replace(Payload.of("p@x", "a/b", b"abcdef"), data=None)
    message = replace(samples.order_message(Dialect.EBMS2), payloads=(payload,))
    stream = codec.write_stream(message, samples.form(Dialect.EBMS2), {"p@x": b"abc"})
    with pytest.raises(InvalidValue, match="3 bytes"):
        b"".join(stream.chunks)
    missing = codec.write_stream(message, samples.form(Dialect.EBMS2), {})
    with pytest.raises(InvalidValue, match="not at hand"):
        b"".join(missing.chunks)


def test_a_header_that_exists_already_is_packed_as_it_is() -> None:
    message = samples.order_message(Dialect.EBMS2)
    form = samples.form(Dialect.EBMS2)
    envelope = codec.write_envelope(message, form).replace(b"conv-77", b"conv-78")
    received = codec.read(codec.pack(envelope, message, form))
    assert received.envelope == envelope
    assert received.message.payloads == message.payloads
