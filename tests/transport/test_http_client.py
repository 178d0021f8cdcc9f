"""The HTTP client says honestly how an attempt ended, whatever the peer does."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Reply
from oncewire.transport.http.client import HttpClient, _Attempt, outcome_of, retry_after
from tests.transport.exchange import (
    SETTINGS,
    Receiver,
    cargo,
    endpoint,
    fake_peer,
    leap,
    once,
    read_request,
    reset,
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answered(text: bytes) -> AttemptOutcome:
    """What the client says when a peer answers with exactly these bytes and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(text)
        await writer.drain()

    async with fake_peer(answer) as url:
        return await once(url)


def plain(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Phrase", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


# --- the answer says it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, OutcomeKind.SENT),
        (202, OutcomeKind.SENT),
        (299, OutcomeKind.SENT),
        (300, OutcomeKind.REFUSED),
        (301, OutcomeKind.REFUSED),
        (307, OutcomeKind.REFUSED),
        (400, OutcomeKind.REFUSED),
        (401, OutcomeKind.REFUSED),
        (404, OutcomeKind.REFUSED),
        (413, OutcomeKind.REFUSED),
        (429, OutcomeKind.REFUSED),
        (500, OutcomeKind.UNKNOWN),
        (502, OutcomeKind.UNKNOWN),
        (503, OutcomeKind.UNKNOWN),
        (504, OutcomeKind.UNKNOWN),
        (599, OutcomeKind.UNKNOWN),
    ],
)
async def test_each_status_has_its_outcome(status: int, kind: OutcomeKind) -> None:
    outcome = await answered(plain(status, b"<body/>", "Content-Type: text/xml"))
    assert outcome.kind is kind
    assert outcome.reply is not None
    assert outcome.reply.status == status
    # Whatever it says is handed up: a SOAP fault comes with 500, an error with 4xx at some peers.
    assert outcome.reply.body == b"<body/>"
    assert outcome.reply.content_type == "text/xml"
    assert (outcome.reason == "") is (kind is OutcomeKind.SENT)


async def test_204_is_sent_with_an_empty_reply() -> None:
    outcome = await answered(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert outcome.kind is OutcomeKind.SENT
    assert outcome.reply == Reply(204)


async def test_a_redirect_is_not_followed() -> None:
    visited = Receiver()
    async with endpoint(visited) as elsewhere:
        there = elsewhere.url

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(plain(307, b"", f"Location: {there}"))

        async with fake_peer(answer) as url:
            outcome = await once(url)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "307" in outcome.reason
    assert visited.taken == []


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Retry-After": "30"}, 30),
        ({"Retry-After": " 0 "}, 0),
        ({"Retry-After": "99999999999999"}, 86_400),
        (
            {
                "Retry-After": "Sun, 15 Nov 2026 10:01:00 GMT",
                "Date": "Sun, 15 Nov 2026 10:00:00 GMT",
            },
            60,
        ),
        (
            {
                "Retry-After": "Sun, 15 Nov 2026 09:00:00 GMT",
                "Date": "Sun, 15 Nov 2026 10:00:00 GMT",
            },
            0,
        ),
        ({"Retry-After": "Sun, 15 Nov 2026 10:01:00 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "٣"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_seconds(headers: dict[str, str], wanted: int | None) -> None:
    assert retry_after(headers) == wanted


async def test_retry_after_travels_with_the_outcome() -> None:
    outcome = await answered(plain(503, b"", "Retry-After: 12"))
    assert outcome.retry_after == 12
    assert outcome_of(Reply(503)).retry_after is None


# --- the answer is no answer -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\x01\x02",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 30_000 + b"\r\n\r\n",
        plain(200, b"r" * 100_001),
    ],
)
async def test_a_broken_answer_leaves_it_unknown(text: bytes) -> None:
    outcome = await answered(text)
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert outcome.reason


async def test_a_compressed_reply_is_not_unpacked() -> None:
    outcome = await answered(plain(200, b"\x1f\x8b-not-really", "Content-Encoding: gzip"))
    assert outcome.kind is OutcomeKind.SENT
    assert outcome.reply is not None
    assert outcome.reply.body == b"\x1f\x8b-not-really"


async def test_silence_after_the_request_is_unknown() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        leap(30)
        await asyncio.Event().wait()

    async with fake_peer(answer) as url:
        outcome = await once(url, timeout=20)
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert "timed out" in outcome.reason or "imeout" in outcome.reason


async def test_a_peer_that_never_reads_is_unknown_after_the_time_out() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        leap(30)
        await asyncio.Event().wait()

    async with fake_peer(answer) as url:
        outcome = await once(url, sent=cargo(*[b"x" * 100_000] * 200), timeout=20)
    assert outcome.kind is OutcomeKind.UNKNOWN


async def test_a_cargo_shorter_or_longer_than_it_said_is_never_taken_as_whole() -> None:
    def lying(size: int) -> Cargo:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"12345"
            yield b"67890"

        return Cargo("text/xml", (), size, chunks)

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for size in (4, 9, 11, 100):
            outcome = await once(transport.url, sent=lying(size))
            assert outcome.kind is OutcomeKind.UNKNOWN, size
            assert "as it said" in outcome.reason
        assert (await once(transport.url, sent=lying(10))).kind is OutcomeKind.SENT
    assert [taken.body for taken in receiver.taken] == [b"1234567890"]


async def test_a_cargo_at_hand_is_sent_without_asking_for_its_pieces() -> None:
    def chunks() -> AsyncIterator[bytes]:
        raise AssertionError("nobody needs to ask")

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for size, kind in ((5, OutcomeKind.SENT), (4, OutcomeKind.UNKNOWN)):
            sent = Cargo("text/xml", (), size, chunks, whole=b"12345")
            assert (await once(transport.url, sent=sent)).kind is kind
        empty = Cargo("text/xml", (), 0, chunks, whole=b"")
        assert (await once(transport.url, sent=empty)).kind is OutcomeKind.SENT
    assert [taken.body for taken in receiver.taken] == [b"12345", b""]


async def test_a_cargo_that_cannot_be_read_is_refused_before_the_first_byte() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        raise OSError("the spool file is gone")
        yield b""

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        outcome = await once(transport.url, sent=Cargo("text/xml", (), 10, chunks))
    assert outcome.kind is OutcomeKind.REFUSED
    assert receiver.taken == []


@pytest.mark.parametrize("header", ["a\r\nInjected: b", "a\nb", "a\x00b"])
async def test_a_header_with_a_line_end_is_refused(header: str) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        sent = cargo(b"<a/>", SOAPAction=header)
        outcome = await once(transport.url, sent=sent)
    assert outcome.kind is OutcomeKind.REFUSED
    assert receiver.taken == []


# --- cut at every byte -------------------------------------------------------------------------


@pytest.mark.long
async def test_a_reset_while_the_request_is_read_is_unknown_at_any_byte() -> None:
    seed = 7_411
    print(f"seed {seed}")
    chance = random.Random(seed)
    cuts = [0, 1, 2, *sorted(chance.randrange(3, 60_000) for _ in range(40))]

    for cut in cuts:

        async def answer(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int = cut
        ) -> None:
            await reader.readexactly(cut)
            reset(writer)

        async with fake_peer(answer) as url:
            outcome = await once(url, sent=cargo(b"<a/>" * 15_000), timeout=30)
            assert outcome.kind is OutcomeKind.UNKNOWN, (cut, outcome)


@pytest.mark.long
async def test_a_reset_while_the_reply_is_read_is_unknown_at_any_byte() -> None:
    whole = plain(200, b"<ack/>" * 3, "Content-Type: text/xml")

    for cut in range(len(whole) + 1):

        async def answer(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int = cut
        ) -> None:
            await read_request(reader)
            writer.write(whole[:cut])
            await writer.drain()
            # Let the bytes leave before the reset overtakes them.
            await asyncio.sleep(0.01)
            reset(writer)

        async with fake_peer(answer) as url:
            outcome = await once(url)
            kind = OutcomeKind.SENT if cut == len(whole) else OutcomeKind.UNKNOWN
            assert outcome.kind is kind, (cut, outcome)


# --- pooled connections ------------------------------------------------------------------------


@pytest.mark.requirement("RTY-5")
async def test_a_stale_pooled_connection_is_replaced_inside_the_transport() -> None:
    connections: list[Streams] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((reader, writer))
        await read_request(reader)
        writer.write(plain(204))
        await writer.drain()
        # Returning closes the connection although the client may have put it in its pool.

    client = HttpClient(SETTINGS)
    await client.start()
    async with fake_peer(answer) as url:
        for _ in range(25):
            outcome = await client.send(cargo(b"<a/>"), url, timeout=30)
            assert outcome.kind is OutcomeKind.SENT, outcome
    await client.close()
    assert len(connections) == 25


async def test_a_pooled_connection_closed_a_moment_ago_is_noticed_before_the_first_byte() -> None:
    requests: list[bytes] = []
    open_ones: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        while True:
            requests.append(await read_request(reader))
            writer.write(plain(204))
            await writer.drain()

    client = HttpClient(SETTINGS)
    await client.start()
    async with fake_peer(answer) as url:
        for _ in range(25):
            outcome = await client.send(cargo(b"<a/>"), url, timeout=30)
            assert outcome.kind is OutcomeKind.SENT, outcome
            # The peer's end reaches the kernel, but the client's loop has not run since.
            reset(open_ones[-1])
    await client.close()
    assert len(requests) == 25


async def test_a_connection_lost_after_the_first_byte_is_never_tried_again() -> None:
    seen = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await read_request(reader)
        seen += 1
        if seen == 1:
            writer.write(plain(204))
            await writer.drain()
            await read_request(reader)
            seen += 1
        reset(writer)

    client = HttpClient(SETTINGS)
    await client.start()
    async with fake_peer(answer) as url:
        first = await client.send(cargo(b"<a/>"), url, timeout=30)
        second = await client.send(cargo(b"<b/>"), url, timeout=30)
    await client.close()
    assert (first.kind, second.kind) == (OutcomeKind.SENT, OutcomeKind.UNKNOWN)
    # The second came once, on the pooled connection, and no fresh one was opened for it.
    assert seen == 2


async def test_a_client_that_is_not_started_refuses() -> None:
    outcome = await HttpClient(SETTINGS).send(cargo(b"x"), "http://127.0.0.1:1/", timeout=1)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "not started" in outcome.reason


async def test_request_headers_say_little_and_cookies_are_not_kept() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await read_request(reader))
            writer.write(plain(204, b"", "Set-Cookie: a=b"))

    client = HttpClient(SETTINGS)
    await client.start()
    async with fake_peer(answer) as url:
        # By name, because cookies of a bare number are never kept anyway.
        named = url.replace("127.0.0.1", "localhost")
        for _ in range(2):
            await client.send(cargo(b"<a/>", SOAPAction='"ebXML"'), named, timeout=30)
    await client.close()
    assert b"Cookie" not in heads[1]
    assert b'SOAPAction: "ebXML"\r\n' in heads[0]
    assert b"Content-Length: 4\r\n" in heads[0]
    assert b"Content-Type: text/xml\r\n" in heads[0]
    assert b"Accept-Encoding: identity\r\n" in heads[0]
    assert b"aiohttp" not in heads[0]


def test_a_large_cargo_may_take_as_long_as_it_goes_on() -> None:
    """What ends an attempt is a time without a step forward, not the time that it takes."""

    class Connection:
        """A peer that takes every piece, and answers at the end."""

        def __init__(self) -> None:
            self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def begin(self, _head: bytes) -> asyncio.Future[str]:
            return self.answer

        async def go_on(self, _piece: bytes) -> None:
            return

    class Limit:
        """What would end it."""

        moved = 0

        def reschedule(self, _when: float) -> None:
            self.moved += 1
            if self.moved == 5:
                connection.answer.set_result("there")

    async def rest() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"12345"

    async def send() -> tuple[str, bool]:
        nonlocal connection
        connection = Connection()
        attempt = _Attempt(Cargo("text/plain", (), 30, rest))
        attempt.patience = limit, 1.0  # type: ignore[assignment]
        answer = await attempt.over(connection, b"head", b"12345", rest())  # type: ignore[arg-type]
        return str(answer), attempt.complete

    connection: Connection
    limit = Limit()
    assert asyncio.run(send()) == ("there", True)
    assert limit.moved == 5
