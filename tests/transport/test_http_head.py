"""Heads and frames of HTTP are read in one way only; whatever could be read in two is refused."""

import asyncio
import random
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.transport.http.head import (
    HELD_MAX,
    BadBody,
    BadHead,
    ChunkCutter,
    Framing,
    Headers,
    HeadLimits,
    LengthCutter,
    RequestHead,
    Stream,
    find_end,
    read_request,
    read_response,
    write_headers,
)

LIMITS = HeadLimits(line=200, field=200, fields=8)


def request(*headers: str, first: str = "POST /msh HTTP/1.1") -> RequestHead:
    return read_request("\r\n".join((first, *headers)).encode("utf-8", "surrogateescape"), LIMITS)


# --- heads -------------------------------------------------------------------------------------


def test_a_head_says_what_is_wanted() -> None:
    head = request("Host: x", "Content-Length:  4 \t", 'SOAPAction: "ebXML"', "Empty:")
    assert (head.method, head.path, head.framing) == ("POST", "/msh", Framing(4))
    assert head.keeps_alive
    assert head.headers["soapaction"] == '"ebXML"'
    assert head.headers.pairs[3] == ("Empty", "")


def test_headers_are_found_in_any_case_of_letters() -> None:
    headers = Headers((("X-One", "a"), ("x-one", "b"), ("Two", "c")))
    assert headers["X-ONE"] == headers.get("x-one") == "a"
    assert dict(headers) == {"X-One": "a", "Two": "c"}
    assert len(headers) == 2
    assert "TWO" in headers
    assert 2 not in headers
    assert headers.get("three") is None
    assert headers.get("three", "d") == "d"


@pytest.mark.parametrize(
    "first",
    [
        "POST /msh", "POST  /msh HTTP/1.1", "POST\t/msh HTTP/1.1", "POST /msh HTTP/1.1 ",
        " POST /msh HTTP/1.1", "POST /msh http/1.1", "POST /msh HTTP/1", "POST /msh HTTP/1.1x",
        "PO(ST /msh HTTP/1.1", "POST /m\x00sh HTTP/1.1", "POST /m\x7fsh HTTP/1.1", "",
        "POST /msh#x HTTP/1.1", "POST /msh HTTP/１.1", "POST /msh\r HTTP/1.1",
    ],
)  # fmt: skip
def test_a_first_line_that_is_none_is_refused(first: str) -> None:
    with pytest.raises(BadHead) as caught:
        request("Host: x", first=first)
    assert caught.value.status == 400


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
def test_another_version_is_told_ours(version: str) -> None:
    with pytest.raises(BadHead) as caught:
        request("Host: x", first=f"POST /msh HTTP/{version}")
    assert caught.value.status == 505


@pytest.mark.parametrize(
    "header",
    [
        "no colon", ": no name", "Name : space before the colon", "Na me: x", " folded", "\tfolded",
        "Na\x00me: x", "Name: a\x00b", "Name: a\rb", "Name: a\nb", "Name: a\x0bb", "Name: a\x7fb",
        "Náme: x", "(Name): x", "",
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_refused(header: str) -> None:
    with pytest.raises(BadHead):
        request("Host: x", header, "After: y")


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 4"),
        ("Content-Length: 4", "content-length: 5"),
        ("Content-Length: 4, 4",),
        ("Content-Length: +4",),
        ("Content-Length: -4",),
        ("Content-Length: 0x4",),
        ("Content-Length: 4_0",),
        ("Content-Length: 4 4",),
        ("Content-Length: ٤",),
        ("Content-Length:",),
        ("Content-Length: " + "9" * 19,),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked;x=y",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding:",),
        ("Host: a", "Host: b"),
        ("Content-Type: a/b", "Content-Type: c/d"),
        ("Expect: 100-continue", "Expect: x"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(headers: tuple[str, ...]) -> None:
    with pytest.raises(BadHead):
        request(*headers)


def test_chunks_are_not_of_http_1_0() -> None:
    with pytest.raises(BadHead):
        request("Transfer-Encoding: chunked", first="POST /msh HTTP/1.0")
    assert not request("Connection: keep-alive", first="POST /msh HTTP/1.0").keeps_alive


@pytest.mark.parametrize(
    ("connection", "alive"),
    [("close", False), ("Close", False), ("x, close", False), ("Upgrade, HTTP2-Settings", True)],
)
def test_who_wants_to_leave_says_so(connection: str, alive: bool) -> None:
    assert request(f"Connection: {connection}").keeps_alive is alive
    assert request("Connection: x", f"Connection: {connection}").keeps_alive is alive


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/msh", "/msh"), ("/msh?a=/b", "/msh"), ("/m%73h", "/msh"), ("/msh%2f", "/msh/"),
        ("http://host/msh?x", "/msh"), ("*", None), ("host:80", None), ("ftp://host/msh", None),
        ("http:/msh", None), ("http://[x/msh", None), ("/../msh", "/../msh"),
    ],
)  # fmt: skip
def test_a_target_is_a_path_of_ours_or_none(target: str, path: str | None) -> None:
    assert request(first=f"POST {target} HTTP/1.1").path == path


def test_a_head_has_bounds() -> None:
    assert request(*["H: v"] * 8).headers.pairs
    for head in (
        lambda: request(*["H: v"] * 9),
        lambda: request("H: " + "v" * 200),
        lambda: request(first=f"POST /{'a' * 200} HTTP/1.1"),
    ):
        with pytest.raises(BadHead):
            head()
    assert LIMITS.whole == 200 + 8 * 200
    with pytest.raises(BadHead):
        find_end(bytearray(b"H: v\r\n" * 400), LIMITS)
    assert HeadLimits(8190, 8190, 64).whole == 64 * 1024


def test_the_end_of_a_head_is_found_and_lone_line_ends_are_not_waited_for() -> None:
    assert find_end(bytearray(b"POST /msh HTTP/1.1\r\nHost: x\r"), LIMITS) == -1
    before = bytearray(b"\r\n\r\nPOST / HTTP/1.1\r\n\r\nbody")
    assert find_end(before, LIMITS) == len(b"POST / HTTP/1.1")
    for lone in (b"POST / HTTP/1.1\nHost: x\n\n", b"POST / HTTP/1.1\r\nHo\rst: x"):
        with pytest.raises(BadHead):
            find_end(bytearray(lone), LIMITS)


@pytest.mark.parametrize(
    ("head", "framing"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", Framing(3)),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: Chunked", Framing(None, chunked=True)),
        (b"HTTP/1.0 200 OK", Framing(None)),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 3", Framing(0)),
        (b"HTTP/1.1 100 Continue", Framing(0)),
    ],
)
def test_a_response_says_where_it_ends(head: bytes, framing: Framing) -> None:
    assert read_response(head, LIMITS).framing == framing


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
        b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 2000", b"ICY 200 OK",
    ],
)  # fmt: skip
def test_a_response_that_is_none_is_refused(head: bytes) -> None:
    with pytest.raises(BadHead):
        read_response(head, LIMITS)


@pytest.mark.parametrize(
    "header",
    [("A", "x\r\nB: y"), ("A", "x\ny"), ("A\r\nB", "x"), ("A:", "x"), ("", "x"), (" ", "")],
)
def test_no_header_is_written_that_would_be_two(header: tuple[str, str]) -> None:
    for headers in ([header], [("Good", "x"), header], [header, ("Good", "x")]):
        with pytest.raises(ValueError, match="header"):
            write_headers("HTTP/1.1 200 OK", headers)


class _Heard:
    """What httptools makes of a head."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


_PIECES = st.sampled_from(
    [
        "Host: x", "Content-Length: 4", "Content-Length: 04", "Content-Length: 4 ",
        "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding : chunked",
        "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked, identity", "Connection: close",
        "X: \x80\xff", "X:", "X:  ", "Content-Length", " X: y", "X\x00: y", "X: y\x01",
        "X: y\nZ: z",
        "X: y\rZ: z", "x-é: y", "Content-length: 1e1", "Content-Length: \x0b4",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=5), st.text(max_size=6), st.integers(0, 40))
def test_what_we_take_another_reader_takes_alike(
    headers: list[str], noise: str, place: int
) -> None:
    """The other way round it may be more generous: we are the stricter one."""
    text = "\r\n".join(("POST /msh HTTP/1.1", *headers))
    text = text[:place] + noise + text[place:]
    head = text.encode("utf-8")
    try:
        ours = read_request(head, LIMITS)
    except BadHead:
        return
    if (ours.method, ours.path) != ("POST", "/msh"):
        # Such a request is refused, and its connection closed.
        return
    heard = _Heard()
    parser = httptools.HttpRequestParser(heard)
    parser.feed_data(head + b"\r\n\r\n")
    assert heard.complete
    assert parser.get_method() == b"POST"
    assert [
        (name.decode("latin-1"), value.decode("utf-8", "replace").strip(" \t"))
        for name, value in heard.headers
    ] == list(ours.headers.pairs)


# --- bodies ------------------------------------------------------------------------------------

CHUNKED = b"4\r\n<a/>\r\nA;name=value\r\n0123456789\r\n003\r\nxyz\r\n0\r\nTrailer: t\r\n\r\n"


def cut(cutter: Any, pieces: list[bytes]) -> tuple[bytes, bytearray]:
    buffer, found = bytearray(), b""
    for piece in pieces:
        buffer += piece
        found += b"".join(cutter.cut(buffer))
    return found, buffer


def test_chunks_are_the_same_however_they_come() -> None:
    for place in range(len(CHUNKED) + 1):
        cutter = ChunkCutter()
        found, left = cut(cutter, [CHUNKED[:place], CHUNKED[place:] + b"POST"])
        assert (found, bytes(left), cutter.over) == (b"<a/>0123456789xyz", b"POST", True)
    cutter = ChunkCutter()
    found, _ = cut(cutter, [CHUNKED[at : at + 1] for at in range(len(CHUNKED))])
    assert (found, cutter.over) == (b"<a/>0123456789xyz", True)


@pytest.mark.parametrize(
    "bad",
    [
        b"zz\r\n", b"-4\r\n", b"+4\r\n", b"0x4\r\n", b"\r\n", b" 4\r\n", b"4\n<a/>\r\n", b"4 5\r\n",
        b"44\n<a/>\r\n0\r\n\r\n",
        b"4\r\n<a/>X", b"4\r\n<a/>\n", b"4\r\n<a/>\rX", b"4;a\x00b\r\n", b"f" * 16 + b"\r\n",
        b"0\r\nnone\r\n", b"0\r\n folded: x\r\n", b"0\r\nA: b\x00\r\n", b"4" * 5000, b"0\r\n\n",
        b"0\r\n" + b"A: b\r\n" * 3000, b"4\r4\r\n",
    ],
)  # fmt: skip
def test_chunks_that_are_none_are_refused(bad: bytes) -> None:
    with pytest.raises(BadBody):
        cut(ChunkCutter(), [bad])


def test_a_body_of_a_length_leaves_the_rest() -> None:
    cutter = LengthCutter(4)
    assert cut(cutter, [b"<a", b"/>POST"]) == (b"<a/>", b"POST")
    assert cutter.over
    assert cutter.cut(bytearray(b"POST")) == []
    assert LengthCutter(0).over
    endless = LengthCutter(None)
    assert cut(endless, [b"a", b"b"]) == (b"ab", b"")
    assert not endless.over


async def test_a_stream_asks_for_more_when_there_is_room() -> None:
    asked: list[int] = []
    stream = Stream(lambda: asked.append(1))
    stream.put([b"x" * HELD_MAX, b"y"])
    assert stream.full
    assert stream.take() == b"x" * HELD_MAX
    assert (stream.full, asked) == (False, [1])
    assert stream.take() == b"y"
    waiting = asyncio.ensure_future(stream.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.end("cut off")
    stream.end("only the first reason counts")
    await waiting
    assert (stream.over, stream.broken, stream.take()) == (True, "cut off", b"")


def test_random_frames_never_yield_more_than_came() -> None:
    seed = 20_261_116
    chance = random.Random(seed)
    alphabet = [b"4\r\n", b"<a/>", b"\r\n", b"0\r\n", b";", b"a", b"\n", b"\x00", b"ff\r\n"]
    for _ in range(3000):
        data = b"".join(chance.choices(alphabet, k=chance.randrange(1, 12)))
        try:
            found, left = cut(ChunkCutter(), [data])
        except BadBody:
            continue
        assert len(found) + len(left) <= len(data), seed
