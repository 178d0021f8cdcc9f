"""Multipart MIME as partners really send it, and payload bytes that never change."""

import base64
import quopri

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncewire.errors import EbxmlError, MimeProblem
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.codec import Parcel, Reader, ReadFault
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.mime.multipart import (
    PartHeaders,
    bare_id,
    base64_lines,
    base64_size,
    decoded,
    decoder,
    header_lines,
    parameters,
)
from oncewire.wire.reader import (
    HeaderRead,
    MultipartReader,
    PayloadData,
    PayloadEnded,
    PayloadStarted,
)
from tests.wire import samples

MANIFEST = (
    '<eb:Manifest eb:version="2.0"><eb:Reference xlink:type="simple" xlink:href="cid:p1"/>'
    "</eb:Manifest>"
)
HEADER = samples.soap(samples.MESSAGE_HEADER, MANIFEST)


def multipart(*parts: bytes, boundary: str = "B", end: str = "\r\n", params: str = "") -> Parcel:
    """A multipart/related of raw parts, each with its own headers."""
    line = end.encode()
    mark = b"--" + boundary.encode()
    body = b"".join(mark + line + part + line for part in parts) + mark + b"--" + line
    return Parcel(f'multipart/related; type="text/xml"; boundary="{boundary}"{params}', body)


def part(content: bytes, *headers: str, end: str = "\r\n") -> bytes:
    return (end.join([*headers, "", ""])).encode() + content


ROOT = part(HEADER, "Content-Type: text/xml", "Content-ID: <h>")


def payload_of(parcel: Parcel) -> bytes | None:
    return codec.read(parcel).message.payloads[0].data


# Content-Type


@pytest.mark.parametrize(
    ("value", "media_type", "params"),
    [
        ("text/xml", "text/xml", {}),
        ("TEXT/XML; Charset=UTF-8", "text/xml", {"charset": "UTF-8"}),
        ('multipart/related; boundary="a;b"; type=text/xml', "multipart/related",
         {"boundary": "a;b", "type": "text/xml"}),
        ("multipart/related;boundary=--=_MIME-Boundary;start=ebXMLHeader@spine.nhs.uk",
         "multipart/related",
         {"boundary": "--=_MIME-Boundary", "start": "ebXMLHeader@spine.nhs.uk"}),
        ('a/b; x="q\\"uote"; y = 2 ;; z', "a/b", {"x": 'q"uote', "y": "2"}),
        ('a/b; boundary="unterminated', "a/b", {"boundary": "unterminated"}),
        ("a/b; x=1; x=2", "a/b", {"x": "1"}),
        ("", "", {}),
    ],
)  # fmt: skip
def test_parameters(value: str, media_type: str, params: dict[str, str]) -> None:
    assert parameters(value) == (media_type, params)


@given(st.text(max_size=200))
def test_any_content_type_is_read(value: str) -> None:
    media_type, params = parameters(value)
    assert isinstance(media_type, str)
    assert all(isinstance(one, str) for one in params.values())


@pytest.mark.parametrize(
    ("value", "bare"),
    [("<a@b>", "a@b"), ("a@b", "a@b"), (" <a@b> ", "a@b"), (None, ""), ("<<a>>", "<a>")],
)
def test_a_content_id_loses_its_brackets(value: str | None, bare: str) -> None:
    assert bare_id(value) == bare


def test_folded_headers_are_joined() -> None:
    lines = [b"Content-Type: a/b;", b"\tname=x", b"X: 1"]
    assert header_lines(lines) == [("Content-Type", "a/b; name=x"), ("X", "1")]


def test_a_header_that_decides_may_stand_once() -> None:
    with pytest.raises(MimeProblem, match="two content-type"):
        PartHeaders.of([("Content-Type", "a/b"), ("content-type", "c/d")])
    assert PartHeaders.of([("X", "1"), ("X", "2")]).others == (("X", "1"), ("X", "2"))


# Shapes


def test_the_usual() -> None:
    parcel = multipart(ROOT, part(b"hello\r\n", "Content-ID: <p1>", "Content-Type: text/plain"))
    (payload,) = codec.read(parcel).message.payloads
    assert (payload.data, payload.media_type, payload.size) == (b"hello\r\n", "text/plain", 7)


@pytest.mark.parametrize(
    "content", [b"", b"\r\n", b"\n", b"\r", b"\n\n", b"a\r", b"x--B", b"\r\n--Bx"]
)
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_no_byte_is_lost_at_the_edges(content: bytes, end: str) -> None:
    parcel = multipart(
        part(HEADER, "Content-ID: <h>", end=end),
        part(content, "Content-ID: <p1>", end=end),
        end=end,
    )
    assert payload_of(parcel) == content


@pytest.mark.parametrize(
    "boundary", ["--=_MIME-Boundary", "----=_Part_10_1", "=-m/5aQ==", "1290", "a b"]
)
def test_odd_boundaries(boundary: str) -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"), boundary=boundary)
    assert payload_of(parcel) == b"x"


def test_start_may_lack_its_brackets() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"), params="; start=h")
    assert payload_of(parcel) == b"x"


def test_start_may_name_a_later_part() -> None:
    parcel = multipart(part(b"x", "Content-ID: <p1>"), ROOT, params='; start="<h>"')
    received = codec.read(parcel)
    assert received.message.payloads[0].data == b"x"
    reader = Reader(parcel.content_type)
    events = reader.feed(parcel.body)
    assert [type(event) for event in events] == [
        HeaderRead, PayloadStarted, PayloadData, PayloadEnded,
    ]  # fmt: skip


def test_start_that_names_no_part_is_a_mime_problem() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"), params='; start="<nobody>"')
    with pytest.raises(ReadFault) as caught:
        codec.read(parcel)
    assert caught.value.error.location == "start"  # type: ignore[union-attr]


def test_a_preamble_and_an_epilogue_are_ignored() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"))
    body = b"This is a multipart message.\r\n--Bogus\r\n" + parcel.body + b"--B\r\nepilogue"
    assert payload_of(Parcel(parcel.content_type, body)) == b"x"


def test_padding_after_a_boundary_is_ignored() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"))
    body = parcel.body.replace(b"--B\r\n", b"--B \t\r\n").replace(b"--B--\r\n", b"--B-- ")
    assert payload_of(Parcel(parcel.content_type, body)) == b"x"


def test_a_missing_closing_boundary_is_taken_and_flagged() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"))
    body = parcel.body[: parcel.body.rindex(b"\r\n--B--")]
    received = codec.read(Parcel(parcel.content_type, body))
    assert received.message.payloads[0].data == b"x"
    assert not received.closed
    assert "the closing boundary is missing" in received.notes


def test_a_boundary_at_the_end_without_dashes_closes_too() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"))
    received = codec.read(Parcel(parcel.content_type, parcel.body.replace(b"--B--", b"--B")))
    assert received.message.payloads[0].data == b"x"
    assert not received.closed


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing like a boundary",
        b"--B\r\nContent-ID: <h>\r\n--B--",
        b"--B\r\nContent-ID: <h>",
        b"--B\r\nno colon here\r\n\r\nx\r\n--B--",
        b"--B\r\n indented\r\n\r\nx\r\n--B--",
        b"--B--\r\n",
    ],
)
def test_a_broken_frame_is_a_mime_problem(body: bytes) -> None:
    with pytest.raises(ReadFault) as caught:
        codec.read(Parcel("multipart/related; boundary=B", body))
    assert isinstance(caught.value.error, MimeProblem)
    assert caught.value.error.remedy


@pytest.mark.parametrize("content_type", ["multipart/related", 'multipart/related; boundary=""'])
def test_a_multipart_without_boundary_is_a_mime_problem(content_type: str) -> None:
    with pytest.raises(ReadFault) as caught:
        codec.read(Parcel(content_type, b"--B\r\n\r\nx"))
    assert caught.value.error.location == "boundary"  # type: ignore[union-attr]


def test_two_parts_of_one_name_are_refused() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"), part(b"y", "Content-ID: <p1>"))
    with pytest.raises(ReadFault) as caught:
        codec.read(parcel)
    assert caught.value.error.location == "cid:p1"  # type: ignore[union-attr]
    assert caught.value.known.message_id == "m-1@alpha.example"


def test_a_part_without_name_gets_one() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>"), part(b"y", "Content-Type: a/b"))
    received = codec.read(parcel)
    assert [one.content_id for one in received.message.payloads] == ["p1", "part-2"]
    assert any("without Content-ID" in note for note in received.notes)


def test_unknown_mime_headers_are_kept_and_ignored() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>", "Content-Description: d", "X-Y: z"))
    (payload,) = codec.read(parcel).message.payloads
    assert payload.mime_headers == (("Content-Description", "d"), ("X-Y", "z"))


def test_a_cid_may_be_escaped() -> None:
    header = samples.soap(samples.MESSAGE_HEADER, MANIFEST.replace("cid:p1", "cid:a%40b%2Bc"))
    parcel = multipart(part(header, "Content-ID: <h>"), part(b"x", "Content-ID: <a@b+c>"))
    assert payload_of(parcel) == b"x"


# Nested parts


def test_a_container_is_taken_apart() -> None:
    inner = multipart(part(b"x", "Content-ID: <p1>"), part(b"y", "Content-ID: <p2>"), boundary="C")
    parcel = multipart(ROOT, part(inner.body, 'Content-Type: multipart/mixed; boundary="C"'))
    payloads = codec.read(parcel).message.payloads
    assert [one.data for one in payloads] == [b"x", b"y"]


def test_a_multipart_that_the_manifest_names_is_a_payload_and_stays_whole() -> None:
    inner = multipart(part(b"x"), part(b"y"), boundary="C").body
    parcel = multipart(
        ROOT, part(inner, "Content-ID: <p1>", 'Content-Type: multipart/signed; boundary="C"')
    )
    assert payload_of(parcel) == inner


def test_a_container_may_be_encoded() -> None:
    inner = multipart(part(b"x", "Content-ID: <p1>"), boundary="C")
    parcel = multipart(
        ROOT,
        part(
            base64_lines(inner.body),
            'Content-Type: multipart/mixed; boundary="C"',
            "Content-Transfer-Encoding: base64",
        ),
    )
    assert payload_of(parcel) == b"x"


# Transfer encodings


@pytest.mark.parametrize("encoding", ["7bit", "8bit", "binary", "BINARY"])
def test_identity_encodings_change_nothing(encoding: str) -> None:
    content = bytes(range(256))
    parcel = multipart(
        ROOT, part(content, "Content-ID: <p1>", f"Content-Transfer-Encoding: {encoding}")
    )
    assert payload_of(parcel) == content


def test_an_unknown_encoding_is_a_mime_problem() -> None:
    parcel = multipart(ROOT, part(b"x", "Content-ID: <p1>", "Content-Transfer-Encoding: uuencode"))
    with pytest.raises(ReadFault, match="uuencode"):
        codec.read(parcel)


def _decoded(encoding: str, data: bytes, size: int) -> bytes:
    machine = decoder(encoding)
    pieces = [machine.feed(data[start : start + size]) for start in range(0, len(data), size)]
    return b"".join(pieces) + machine.finish()


@given(st.binary(max_size=300), st.integers(1, 80))
@example(b"", 1)
def test_base64_is_undone_in_any_pieces(content: bytes, size: int) -> None:
    encoded = base64_lines(content)
    assert len(encoded) == base64_size(len(content))
    assert _decoded("base64", encoded, size) == content
    assert _decoded("base64", base64.b64encode(content).rstrip(b"="), size) == content


@given(st.binary(max_size=60), st.integers(1, 80), st.data())
def test_foreign_characters_in_base64_are_skipped_and_told(
    content: bytes, size: int, data: st.DataObject
) -> None:
    encoded = base64_lines(content)
    place = data.draw(st.integers(0, len(encoded)))
    odd = encoded[:place] + b'"*' + encoded[place:]
    machine = decoder("base64")
    pieces = [machine.feed(odd[start : start + size]) for start in range(0, len(odd), size)]
    assert b"".join(pieces) + machine.finish() == content
    assert machine.foreign
    with pytest.raises(MimeProblem):
        decoded("base64", odd)
    assert decoded("base64", odd, lenient=True) == content
    assert decoded("base64", encoded) == content


@pytest.mark.parametrize("damaged", [b"A*", b"QUJD=", b"QQ==QUJD", b"A", b"QUI=\nQQ=="])
def test_damaged_base64_is_refused(damaged: bytes) -> None:
    with pytest.raises(MimeProblem):
        _decoded("base64", damaged, len(damaged))


@given(st.binary(max_size=300), st.integers(1, 80))
def test_quoted_printable_is_undone_in_any_pieces(content: bytes, size: int) -> None:
    encoded = quopri.encodestring(content)
    assert _decoded("quoted-printable", encoded, size) == quopri.decodestring(encoded)


@given(st.binary(max_size=20), st.integers(1, 5000))
def test_a_very_long_quoted_printable_line_is_not_cut_in_an_escape(tail: bytes, size: int) -> None:
    encoded = b"=41" * 3000 + b"".join(b"=%02X" % byte for byte in tail)
    assert _decoded("quoted-printable", encoded, size) == b"A" * 3000 + tail


# Piece by piece


class Sink:
    """Keeps the parts it is told of, and where they lay."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bytes]] = []
        self.places: list[tuple[int | None, int]] = []
        self.open: list[bytes] = []
        self.name = ""

    def part_started(self, headers: PartHeaders) -> bool:
        self.name, self.open = headers.content_id, []
        return True

    def part_data(self, data: bytes) -> None:
        self.open.append(data)

    def part_ended(self, begin: int | None, end: int) -> None:
        self.parts.append((self.name, b"".join(self.open)))
        self.places.append((begin, end))


_LINES = st.lists(
    st.sampled_from(
        [b"--B\r\n", b"--B--\r\n", b"--B", b"--", b"\r\n", b"\n", b"\r", b"Content-ID: <x>\r\n",
         b"x", b"--C\n", b"--C--\n", b'Content-Type: multipart/mixed; boundary="C"\r\n', b" "]
    ),
    max_size=40,
).map(b"".join)  # fmt: skip


def _outcome(body: bytes, size: int) -> object:
    sink = Sink()
    try:
        reader = MultipartReader("B", sink, DEFAULT_LIMITS)
        for start in range(0, len(body), size):
            reader.feed(body[start : start + size])
        reader.finish()
    except EbxmlError as error:
        return sink.parts, sink.places, str(error)
    for (_, content), (begin, end) in zip(sink.parts, sink.places, strict=True):
        assert begin is not None
        assert body[begin:end] == content
    return sink.parts, sink.places, reader.unclosed


@given(_LINES, st.integers(1, 20))
def test_how_the_bytes_arrive_makes_no_difference(body: bytes, size: int) -> None:
    assert _outcome(body, size) == _outcome(body, max(1, len(body)))


_NESTED = b"--B\r\nContent-Type: multipart/mixed; boundary=C\r\n%b\r\n%b\r\n--B--\r\n"
_INNER = b"--C\r\nContent-ID: <x>\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n--C--\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_part_has_a_place_where_its_bytes_lie_as_they_travelled(size: int) -> None:
    """In a container too, unless the container itself is encoded."""
    for extra, inner in ((b"", _INNER), (b"Content-Transfer-Encoding: base64\r\n", None)):
        body = _NESTED % (extra, inner or base64.b64encode(_INNER))
        sink = Sink()
        reader = MultipartReader("B", sink, DEFAULT_LIMITS)
        for start in range(0, len(body), size):
            reader.feed(body[start : start + size])
        reader.finish()
        assert sink.parts == [("x", b"x")]
        ((begin, end),) = sink.places
        assert (None if begin is None else body[begin:end]) == (inner and b"eA==")


def test_a_part_is_found_where_it_lies() -> None:
    part = b"--B\r\nContent-ID: <%b>\r\nContent-Transfer-Encoding: %b\r\n\r\n%b\r\n"
    body = part % (b"a", b"binary", b"<x/>") + part % (b"b", b"base64", b"eA==")
    body += part % (b"c", b"8bit", b"") + b"--B--\r\n"
    sink = Sink()
    reader = MultipartReader("B", sink, DEFAULT_LIMITS)
    reader.feed(body)
    reader.finish()
    assert [body[slice(*place)] for place in sink.places] == [b"<x/>", b"eA==", b""]


def test_the_header_is_there_before_the_payload() -> None:
    parcel = samples.written(Dialect.EBMS2)
    start = parcel.body.index(samples.ORDER.data or b"")
    reader = Reader(parcel.content_type)
    events = reader.feed(parcel.body[: start + 3])
    assert isinstance(events[0], HeaderRead)
    assert not events[0].received.complete
    assert events[0].received.message.payloads == ()
    assert events[0].received.message.manifest
    assert isinstance(events[1], PayloadStarted)


def test_a_faulty_header_is_refused_before_the_payload() -> None:
    parcel = multipart(
        part(HEADER.replace(b'eb:version="2.0"', b'eb:version="9"'), "Content-ID: <h>"),
        part(b"x" * 1000, "Content-ID: <p1>"),
    )
    reader = Reader(parcel.content_type)
    with pytest.raises(ReadFault) as caught:
        reader.feed(parcel.body[: parcel.body.index(b"xxx") + 10])
    assert caught.value.known.message_id == "m-1@alpha.example"


def test_a_cut_off_payload_after_a_good_header_keeps_the_facts() -> None:
    parcel = multipart(
        ROOT, part(b"QUJDQ", "Content-ID: <p1>", "Content-Transfer-Encoding: base64")
    )
    with pytest.raises(ReadFault) as caught:
        codec.read(parcel)
    assert caught.value.answerable
    assert caught.value.known.conversation_id == "conv-77"
    assert caught.value.envelope == HEADER


def test_a_mail_may_be_one_encoded_part() -> None:
    header = samples.soap(samples.MESSAGE_HEADER)
    parcel = Parcel(
        "text/xml; charset=utf-8", base64_lines(header), (("Content-Transfer-Encoding", "base64"),)
    )
    assert codec.read(parcel).envelope == header
    plain = Parcel("text/xml", header, (("Content-Transfer-Encoding", "base64"),))
    assert codec.read(plain).envelope == header


def test_a_bare_draft_header_is_taken() -> None:
    envelope = codec.write_envelope(
        samples.order_message(Dialect.MS_09X, ()), samples.form(Dialect.MS_09X)
    )
    assert codec.read(Parcel("application/vnd.eb+xml", envelope)).message.dialect is Dialect.MS_09X


def test_the_mime_charset_counts_when_the_document_is_silent() -> None:
    header = samples.soap(samples.MESSAGE_HEADER.replace("conv-77", "conv-é"))
    latin = header.decode().encode("iso-8859-1")
    received = codec.read(Parcel("text/xml; charset=ISO-8859-1", latin))
    assert received.message.header.conversation_id == "conv-é"
    utf16 = b'<?xml version="1.0" encoding="UTF-16"?>'.decode() + header.decode()
    wide = codec.read(Parcel("text/xml", utf16.encode("utf-16")))
    assert wide.message.header.conversation_id == "conv-é"


def _verdict(parcel: Parcel, *, pieces: bool) -> object:
    try:
        if not pieces:
            received = codec.read(parcel)
            return received.notes, [one.data for one in received.message.payloads]
        reader = Reader(parcel.content_type)
        data: dict[str, bytes] = {}
        events = reader.feed(parcel.body)
        last, received = reader.finish()
    except ReadFault as fault:
        return type(fault.error), getattr(fault.error, "location", "")
    name = ""
    for event in [*events, *last]:
        if isinstance(event, PayloadStarted):
            name = event.content_id
            data[name] = b""
        elif isinstance(event, PayloadData):
            data[name] += event.data
    return received.notes, [data[one.content_id] for one in received.message.payloads]


@given(_LINES)
@example(b"--B\r\n\r\nx\n--B\r\n\r\ny\r\n--B--")
@example(b"--B\r\nContent-ID: <p1>\r\n\r\nx\n--B\r\nContent-ID: <p2>\r\n\r\ny\r\n--B--\r\n")
@example(b"--B\r\nContent-ID: <p1>\n\r\nx\r\n\r\ny\r\n--B--\r\n")
def test_the_short_way_and_the_long_way_agree(tail: bytes) -> None:
    body = b"--B\r\n" + ROOT + b"\r\n" + tail
    parcel = Parcel("multipart/related; boundary=B", body)
    assert _verdict(parcel, pieces=False) == _verdict(parcel, pieces=True)
