"""The short way to take a body apart says what the long way says."""

import random

from oncewire.errors import EbxmlError
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.mime.multipart import PartHeaders, parameters
from oncewire.wire.reader import MultipartReader

CASES = 6_000
_LINES = [
    b"Content-ID: <a@b>", b"Content-Type: text/xml; charset=UTF-8", b"content-id: <x>",
    b"Content-ID: <a b>", b"Content-Type:  x/y ", b"Content-Type: x/y", b"Content-ID: a@b",
    b"Content-ID: <<a>>", b"Content-Transfer-Encoding: base64", b"Content-Type: \xc3\xa9",
    b"Content-ID: <" + b"x" * 255 + b">", b"Content-ID: <" + b"x" * 256 + b">", b" folded",
    b"Content-ID: <>", b"Content-Type: ", b"CONTENT-TYPE: a/b; c=\"d\"",
    b"Content-Type: multipart/mixed; boundary=c",
]  # fmt: skip
_USUAL = [b"Content-ID: <%d@b>\r\nContent-Type: x/y" % number for number in range(3)]
_CONTENTS = [
    *(b"", b"<a/>", b"\r", b"\n", b"\r\n", b"\n--b\r\n", b"\n--b", b"\r\n--b", b"\r\n--bb\r\n"),
    *(b"\r\n--b \r\n", b"--b--", b"\r\n--b--\r\n", b"a\r\n\r\nb", b"\n--b--"),
]
_ENDS = [b"\r\n--b--\r\n", b"\r\n--b--", b"\n--b--\r\n", b"\r\n--b-- \r\n", b"", b"\r\n--b\r\n"]


class _Sink:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def part_started(self, headers: PartHeaders) -> bool:
        self.told.append(headers)
        return True

    def part_data(self, data: bytes) -> None:
        self.told.append(data)

    def part_ended(self, begin: int | None, end: int) -> None:
        content = b"".join(each for each in self.told[-9:] if isinstance(each, bytes))
        self.told.append((begin, end, content[-9:]))


def _body(chance: random.Random) -> bytes:
    body = chance.choice((b"", b"", b"", b"\r\n", b"before\r\n"))
    for number in range(chance.randrange(1, 4)):
        body += chance.choice((b"\r\n", b"\r\n", b"\n")) if number else b""
        body += b"--b" + chance.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b" \r\n"))
        if chance.random() < 0.8:
            body += chance.choice(_USUAL)
        else:
            body += b"\r\n".join(chance.choice(_LINES) for _ in range(chance.randrange(1, 4)))
        body += chance.choice((b"\r\n\r\n", b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n"))
        body += chance.choice((b"<a/>", chance.choice(_CONTENTS)))
    return body + chance.choice((b"\r\n--b--\r\n", chance.choice(_ENDS)))


def _read(body: bytes, piece: int | None) -> tuple[list[object], bool, str]:
    sink, problem = _Sink(), ""
    reader = MultipartReader("b", sink, DEFAULT_LIMITS)
    try:
        if piece is None:
            reader.read(body)
        else:
            for at in range(0, len(body), piece):
                reader.feed(body[at : at + piece])
        reader.finish()
    except EbxmlError as error:
        problem = str(error)
    return [each for each in sink.told if each != b""], reader.unclosed, problem


def test_the_first_of_two_parameters_counts() -> None:
    assert parameters('a/b; boundary="first"; Boundary="second"')[1] == {"boundary": "first"}


def test_a_whole_body_is_read_as_it_is_read_in_one_piece() -> None:
    chance, short = random.Random(8), 0
    for _ in range(CASES):
        body = _body(chance)
        short += MultipartReader("b", _Sink(), DEFAULT_LIMITS)._usual_parts(body) is not None
        assert _read(body, None) == _read(body, 65_536), body
    assert short > CASES // 40


def test_what_is_beyond_a_limit_is_left_to_the_long_way() -> None:
    part = b"--b\r\n" + _USUAL[0] + b"\r\n\r\n<a/>\r\n"
    for body, taken in ((part * DEFAULT_LIMITS.parts, True), (part * 1000, False)):
        reader = MultipartReader("b", _Sink(), DEFAULT_LIMITS)
        assert (reader._usual_parts(body + b"--b--") is not None) is taken
    name = b"Content-ID: <" + b"x" * 256 + b">\r\nContent-Type: a/b"
    assert "Content-ID" in _read(b"--b\r\n" + name + b"\r\n\r\n<a/>\r\n--b--", None)[2]
    long = b"Content-ID: <a>\r\nContent-Type: a/b; c=" + b"d" * DEFAULT_LIMITS.part_header_bytes
    body = b"--b\r\n" + long + b"\r\n\r\n<a/>\r\n--b--"
    assert _read(body, None)[2] == _read(body, 65_536)[2] != ""
