"""Every named limit holds, before the thing it bounds is built; no document type gets in."""

import re
import time
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import pytest

from oncewire.errors import EbxmlError, MimeProblem, OtherXml
from oncewire.message.form import Dialect
from oncewire.wire import codec, limits
from oncewire.wire.codec import Parcel, Reader, ReadFault
from oncewire.wire.inspection import open_capture
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.mime.compression import Inflater, compressed
from tests.wire import samples
from tests.wire.mime.test_mime import ROOT, multipart, part
from tests.wire.samples import MESSAGE_HEADER, soap


def refused(parcel: Parcel, bounds: Limits = DEFAULT_LIMITS) -> EbxmlError:
    with pytest.raises(ReadFault) as caught:
        codec.read(parcel, bounds)
    assert isinstance(caught.value.error, EbxmlError)
    return caught.value.error


def xml(text: str) -> Parcel:
    return Parcel("text/xml", text.encode())


def test_each_limit_has_a_reason_and_a_test() -> None:
    source = Path(limits.__file__).read_text(encoding="utf-8")
    body = source[source.index("class Limits") : source.index("DEFAULT_LIMITS")]
    for field in fields(Limits):
        above = body[: body.index(f"    {field.name}:")].rstrip().splitlines()
        shared = re.match(r"    \w+: int", above[-1])
        assert above[-1].lstrip().startswith("#") or shared, f"{field.name} has no reason"
    # Those of documents hold where parts are gathered.
    documents = Path(__file__).parents[1] / "handler" / "documents" / "test_bounds.py"
    here = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__), documents))
    for field in fields(Limits):
        assert f'"{field.name}"' in here, f"{field.name} has no test"


def over_the_wire(name: str) -> tuple[Parcel, Limits]:
    """A message just beyond the limit of that name."""
    tight = {
        "header_bytes": replace(DEFAULT_LIMITS, header_bytes=500),
        "header_elements": replace(DEFAULT_LIMITS, header_elements=200),
        "part_header_bytes": replace(DEFAULT_LIMITS, part_header_bytes=100),
        "preamble_bytes": replace(DEFAULT_LIMITS, preamble_bytes=100),
        "before_root_bytes": replace(DEFAULT_LIMITS, before_root_bytes=100),
        "payload_bytes": replace(DEFAULT_LIMITS, payload_bytes=100),
    }
    parcels = {
        "header_bytes": xml(soap(MESSAGE_HEADER).decode()),
        "header_elements": xml("<a>" + "<b/>" * 200 + "</a>"),
        "header_depth": xml("<a>" * 65 + "</a>" * 65),
        "header_attributes": xml("<a " + " ".join(f'b{n}=""' for n in range(65)) + "/>"),
        "header_namespaces": xml(
            "<a " + " ".join(f'xmlns:n{n}="u:{n}"' for n in range(60)) + ">"
            "<b " + " ".join(f'xmlns:m{n}="u:{n}"' for n in range(5)) + "/></a>"
        ),
        "header_canonical": xml(
            "<a " + " ".join(f'xmlns:n{n}="u:{n}"' for n in range(58)) + ">"
            "<b>" + "<c/>" * 700 + "</b></a>"
        ),
        "header_siblings": xml("<a>" + "<b/>" * 1001 + "</a>"),
        "parts": multipart(ROOT, *(part(b"", f"Content-ID: <p{n}>") for n in range(102))),
        "nesting": multipart(part(_nested(3), 'Content-Type: multipart/mixed; boundary="N3"')),
        "part_header_lines": multipart(part(b"", *(f"X-{n}: y" for n in range(65)))),
        "part_header_bytes": multipart(part(b"", "X: " + "y" * 100)),
        "preamble_bytes": Parcel("multipart/related; boundary=B", b"x" * 300 + b"\r\n--B--"),
        "before_root_bytes": multipart(
            part(b"x" * 101, "Content-ID: <p1>"), ROOT, params='; start="<h>"'
        ),
        "payload_bytes": multipart(ROOT, part(b"x" * 101, "Content-ID: <p1>")),
    }
    return parcels[name], tight.get(name, DEFAULT_LIMITS)


def _nested(levels: int) -> bytes:
    inner = b"x"
    for level in range(1, levels + 1):
        kind = f'Content-Type: multipart/mixed; boundary="N{level - 1}"' if level > 1 else "X: y"
        inner = multipart(part(inner, kind), boundary=f"N{level}").body
    return inner


@pytest.mark.parametrize(
    "name",
    [
        "header_bytes", "header_elements", "header_depth", "header_attributes", "header_siblings",
        "header_namespaces", "header_canonical",
        "parts", "nesting", "part_header_lines", "part_header_bytes", "preamble_bytes",
        "before_root_bytes", "payload_bytes",
    ],
)  # fmt: skip
def test_beyond_a_limit_is_refused_and_the_limit_is_named(name: str) -> None:
    parcel, bounds = over_the_wire(name)
    error = refused(parcel, bounds)
    assert error.location == name
    assert f"`{name}`" in error.remedy
    # In pieces it is no different.
    reader = Reader(parcel.content_type, (), bounds)
    with pytest.raises(ReadFault) as caught:
        _feed_all(reader, parcel.body)
    assert getattr(caught.value.error, "location", "") == name


def _feed_all(reader: Reader, body: bytes) -> None:
    for start in range(0, len(body), 100):
        reader.feed(body[start : start + 100])
    reader.finish()


@pytest.mark.parametrize(
    "text",
    [
        "<a>" * 64 + "</a>" * 64,
        "<a " + " ".join(f'b{n}=""' for n in range(64)) + "/>",
        "<a>" + "<b/>" * 1000 + "</a>",
    ],
)
def test_up_to_a_limit_is_let_through(text: str) -> None:
    assert limits.enforce(text.encode(), None, DEFAULT_LIMITS) is None


def test_messages_in_one_body_are_counted() -> None:
    one = samples.written(Dialect.EBMS2)
    assert len(codec.read_all(codec.bundle([one] * 16))) == 16
    with pytest.raises(ReadFault) as caught:
        codec.read_all(codec.bundle([one] * 17))
    assert getattr(caught.value.error, "location", "") == "bundled"


def test_attributes_are_counted_together() -> None:
    bounds = replace(DEFAULT_LIMITS, header_elements=100)
    many = " ".join(f'b{n}=""' for n in range(51))
    assert limits.enforce(f"<a {many}/>".encode(), None, bounds) is None
    error = refused(xml(f"<a><b {many}/><b {many}/></a>"), bounds)
    assert error.location == "header_elements"


def test_siblings_are_counted_whatever_the_depth() -> None:
    bounds = replace(DEFAULT_LIMITS, header_depth=10_000, header_siblings=100)
    error = refused(xml("<a>" + "<b/>" * 150 + "</a>"), bounds)
    assert error.location == "header_siblings"


def test_id_length() -> None:
    assert DEFAULT_LIMITS.id_length == 255  # "id_length"
    envelope = soap(MESSAGE_HEADER.replace("m-1@alpha.example", "m" * 256))
    assert refused(Parcel("text/xml", envelope)).location.endswith("MessageId")
    fine = soap(MESSAGE_HEADER.replace("m-1@alpha.example", "m" * 255))
    assert codec.read(Parcel("text/xml", fine)).message.header.message_id == "m" * 255
    long_name = multipart(ROOT, part(b"x", f"Content-ID: <{'p' * 256}>"))
    assert isinstance(refused(long_name), MimeProblem)


def test_compression_ratio() -> None:
    name = "compression_ratio"
    bomb = b"".join(compressed([b"\x00" * 1_000_000] * 8))
    inflater = Inflater("gzip")
    with pytest.raises(MimeProblem) as caught:
        list(inflater.feed(bomb))
    assert caught.value.location == name
    # It stopped on the way, long before the end.
    assert inflater.size < 2_000_000


@pytest.mark.parametrize(
    "envelope",
    [
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b'<?xml version="1.0"?><!DOCTYPE a SYSTEM "http://evil.example/x.dtd"><a/>',
        b'<!DOCTYPE lolz [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><lolz>&b;</lolz>',
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a []><a/>'.encode("utf-16"),
        "<!DOCTYPE a []><a/>".encode("utf-16-le"),
        b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE a []+AD4-<a/>',
        '<?xml version="1.0" encoding="cp037"?><a/>'.encode("cp037"),
    ],
)
def test_a_document_type_is_refused_in_any_encoding(envelope: bytes) -> None:
    error = refused(Parcel("text/xml", envelope))
    assert isinstance(error, OtherXml)
    assert (
        "document type" in error.problem
        or "encoding" in error.problem
        or ("well-formed" in error.problem)
    )


def test_an_encoding_named_by_mime_alone_is_judged_too() -> None:
    error = refused(Parcel("text/xml; charset=utf-7", b"+ADwAIQ-DOCTYPE a []+AD4-<a/>"))
    assert error.location == "encoding"


def test_what_is_huge_is_refused_quickly_and_cheaply() -> None:
    # Bounds with an order of magnitude to spare: this catches a tree that is built first,
    # not a slow machine.
    bombs = [
        b"<a>" + b"<b/>" * 260_000 + b"</a>",
        b"<a>" * 150_000,
        b"<a " + b" ".join(b'b%d=""' % n for n in range(80_000)) + b"/>",
        b"<a>" + b"&amp;" * 200_000 + b"</a>",
    ]
    for bomb in bombs:
        tracemalloc.start()
        started = time.process_time()
        refused(Parcel("text/xml", bomb))
        spent = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000_000
        assert spent < 2.0


def test_many_parts_cost_no_more_than_the_limit() -> None:
    body = b"--B\r\n\r\n" * 200_000
    started = time.process_time()
    error = refused(Parcel("multipart/related; boundary=B", body))
    assert isinstance(error, EbxmlError)
    assert time.process_time() - started < 5.0


def test_parts_within_parts_count_like_all_others() -> None:
    parts = [part(b"", f"Content-ID: <p{number}>") for number in range(120)]
    inner = multipart(ROOT, *parts[:60], boundary="N").body
    nested = part(inner, 'Content-Type: multipart/mixed; boundary="N"')
    assert refused(multipart(nested, *parts[60:])).location == "parts"


def test_a_header_line_of_a_part_that_never_ends_is_stopped_while_it_arrives() -> None:
    reader = Reader("multipart/related; boundary=B")
    reader.feed(b"--B\r\nX: ")
    with pytest.raises(ReadFault) as caught:
        reader.feed(b"y" * DEFAULT_LIMITS.part_header_bytes)
    assert caught.value.error.location == "part_header_bytes"  # type: ignore[union-attr]


def test_a_mail_with_endless_headers_is_refused() -> None:
    with pytest.raises(ReadFault) as caught:
        open_capture(b"X: y\r\n" * 1000 + b"\r\nbody")
    assert caught.value.error.location == "part_header_lines"  # type: ignore[union-attr]


def test_the_bytes_held_stay_within_the_limits() -> None:
    parcel = samples.written(Dialect.EBMS2, (samples.PICTURE,))
    big = parcel.body.replace(
        samples.PICTURE.data or b"", b"\n".join([b"--=_not a boundary"] * 50_000)
    )
    reader = Reader(parcel.content_type)
    for start in range(0, len(big), 8192):
        reader.feed(big[start : start + 8192])
    assert reader.work.buffered <= 8192 + 4096
    assert reader.work.parts == 2


@pytest.mark.parametrize("content_type", ["text/xml", "multipart/related; boundary=B"])
def test_an_endless_header_is_stopped_while_it_arrives(content_type: str) -> None:
    reader = Reader(content_type)
    if content_type != "text/xml":
        reader.feed(b"--B\r\n\r\n")
    with pytest.raises(ReadFault) as caught:
        _feed_without_end(reader)
    assert caught.value.error.location == "header_bytes"  # type: ignore[union-attr]
    assert reader.work.buffered <= DEFAULT_LIMITS.header_bytes + 6000


def _feed_without_end(reader: Reader) -> None:
    for _ in range(50 * DEFAULT_LIMITS.header_bytes // 3000):
        reader.feed(b"<a>" * 1000)
