"""The HTTP endpoint towards good, clumsy and hostile peers, over real sockets."""

import asyncio
import contextlib
import json
import logging
import random
import time

import pytest

from oncewire.errors import TransportProblem
from oncewire.transport import listener
from oncewire.transport.contract import Delivery, OutcomeKind, Reply
from oncewire.transport.http.server import BrokenBody, HttpLimits, HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from tests.transport.exchange import (
    Receiver,
    Taken,
    cargo,
    endpoint,
    leap,
    port_of,
    post,
    reset,
    talk,
)


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


# --- what it answers ---------------------------------------------------------------------------


@pytest.mark.requirement("TRN-1", "TRN-2")
async def test_a_post_is_taken_and_answered_without_a_body() -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        answer = await talk(transport.url, post(b"<a/>", "Content-Type: text/xml"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204")
    assert body == b""
    assert b"Server: Oncewire" in head
    assert receiver.taken[0].body == b"<a/>"
    assert receiver.taken[0].length == 4
    assert receiver.taken[0].peer.address == "127.0.0.1"
    assert receiver.taken[0].peer.certificate is None


async def test_the_handlers_reply_is_written_as_it_is() -> None:
    reply = Reply(500, "text/xml; charset=utf-8", (("SOAPAction", '"ebXML"'),), b"<Fault/>")

    async with endpoint(Receiver(reply)) as transport:
        answer = await talk(transport.url, post(b"<a/>"))
    assert status(answer) == 500
    assert b"Content-Type: text/xml; charset=utf-8\r\n" in answer
    assert b'SOAPAction: "ebXML"' in answer
    assert answer.endswith(b"\r\n\r\n<Fault/>")


async def test_503_carries_retry_after() -> None:
    async with endpoint(Receiver(Reply(503, retry_after=17))) as transport:
        answer = await talk(transport.url, post(b"<a/>"))
    assert status(answer) == 503
    assert b"Retry-After: 17\r\n" in answer


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"])
async def test_only_post_is_taken(method: str) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        request = post(b"").replace(b"POST", method.encode(), 1)
        answer = await talk(transport.url, request)
    assert status(answer) == 405
    assert b"Allow: POST" in answer
    assert not receiver.taken


@pytest.mark.parametrize("path", ["/", "/msh/", "/msh/../msh2", "//msh", "/MSH", "/msh%2f"])
async def test_only_one_path_exists(path: str) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        assert status(await talk(transport.url, post(b"x", path=path))) == 404
    assert not receiver.taken


async def test_a_query_belongs_to_the_same_endpoint() -> None:
    async with endpoint(Receiver()) as transport:
        assert status(await talk(transport.url, post(b"x", path="/msh?from=partner"))) == 204


async def test_chunked_bodies_are_taken() -> None:
    head = (
        b"POST /msh HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        answer = await talk(transport.url, head, b"4\r\n<a/>\r\n", b"3\r\nxyz\r\n", b"0\r\n\r\n")
    assert status(answer) == 204
    assert receiver.taken[0].body == b"<a/>xyz"
    assert receiver.taken[0].length is None


async def test_100_continue_is_given_before_the_body() -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"", "Expect: 100-continue", length=4))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"<a/>")
        assert status(await reader.read()) == 204
        writer.close()
    assert receiver.taken[0].body == b"<a/>"


async def test_a_client_of_http_1_0_is_never_told_to_continue() -> None:
    # It would take the 100 for its answer; RFC 9110 10.1.1 has its wish ignored.
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for wish in ("100-continue", "x"):
            request = post(b"<a/>", f"Expect: {wish}").replace(b"HTTP/1.1", b"HTTP/1.0")
            assert status(await talk(transport.url, request)) == 204
    assert [taken.body for taken in receiver.taken] == [b"<a/>", b"<a/>"]


async def test_an_http2_upgrade_wish_is_answered_in_http1() -> None:
    # Java's client sends this wish with its first plain-text POST.
    wish = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAAB",
    )
    request = post(b"<a/>", *wish).replace(b"Connection: close\r\n", b"")

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(request)
        assert status(await reader.readuntil(b"\r\n\r\n")) == 204
        writer.write(request)
        assert status(await reader.readuntil(b"\r\n\r\n")) == 204
        writer.close()
    assert [taken.body for taken in receiver.taken] == [b"<a/>", b"<a/>"]


async def test_connections_are_kept_for_the_next_request() -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for number in range(20):
            outcome = await transport.send(cargo(b"%d" % number), transport.url, timeout=30)
            assert outcome.kind is OutcomeKind.SENT
        assert transport.connections == 1


# --- what it refuses before reading ------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("Content-Encoding: gzip", 415),
        ("Content-Encoding: br", 415),
        ("Expect: 200-ok", 417),
    ],
)
async def test_what_cannot_be_read_is_refused_first(header: str, wanted: int) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        assert status(await talk(transport.url, post(b"x", header))) == wanted
    assert not receiver.taken
    assert not receiver.broken


@pytest.mark.long
async def test_a_body_announced_too_long_is_refused_without_reading_it() -> None:
    receiver = Receiver()
    async with endpoint(receiver, limits=HttpLimits(max_body=1000)) as transport:
        assert status(await talk(transport.url, post(b"", length=1001))) == 413
        assert status(await talk(transport.url, post(b"x" * 1000))) == 204
    assert len(receiver.taken) == 1


async def test_a_body_that_grows_too_long_is_cut_off() -> None:
    head = b"POST /msh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    receiver = Receiver()
    async with endpoint(receiver, limits=HttpLimits(max_body=1000)) as transport:
        pieces = [b"190\r\n" + b"y" * 400 + b"\r\n"] * 4
        answer = await talk(transport.url, head, *pieces, b"0\r\n\r\n")
    assert status(answer) == 413
    assert b"should not be seen" not in answer
    assert not receiver.taken
    assert isinstance(receiver.broken[0], BrokenBody)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting on a plain port
        b"POST\x00/msh HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /msh HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\n folded: y\r\nBad Header: z\r\n\r\n",
        b"POST /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\nLong: " + b"a" * 20_000 + b"\r\n\r\n",
        b"POST /msh HTTP/1.1\r\nHost: x\r\n" + b"H: v\r\n" * 100 + b"\r\n",
    ],
)
async def test_garbage_gets_400_or_an_end_and_never_a_traceback(request_bytes: bytes) -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        answer = await talk(transport.url, request_bytes, close=True)
        assert not answer or status(answer) in {400, 505}
        assert b"Traceback" not in answer
        assert b'File "' not in answer
        # The endpoint still works.
        assert status(await talk(transport.url, post(b"<a/>"))) == 204
    assert [taken.body for taken in receiver.taken] == [b"<a/>"]


async def test_random_bytes_never_reach_the_handler() -> None:
    seed = 20_261_115
    print(f"seed {seed}")
    chance = random.Random(seed)

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for _ in range(150):
            noise = chance.randbytes(chance.randrange(1, 400))
            await talk(transport.url, noise, close=True)
        assert status(await talk(transport.url, post(b"<a/>"))) == 204
    assert len(receiver.taken) == 1


# --- bodies that break -------------------------------------------------------------------------


async def test_a_truncated_body_is_told_to_the_handler_as_broken() -> None:
    receiver = Receiver()
    async with endpoint(receiver) as transport:
        await talk(transport.url, post(b"<only a part", length=500), close=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"<another", length=500))
        while receiver.begun < 2:
            await asyncio.sleep(0.01)
        reset(writer)
        while len(receiver.broken) < 2:
            await asyncio.sleep(0.01)
    assert not receiver.taken
    assert all(isinstance(error, BrokenBody) for error in receiver.broken)
    del reader


@pytest.mark.long
async def test_a_handler_may_let_a_broken_body_pass_through(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def careless(delivery: Delivery) -> Reply:
        async for _ in delivery.body:
            pass
        return Reply(204)

    with caplog.at_level(logging.WARNING):
        async with endpoint(careless, limits=HttpLimits(body_pause=0.2)) as transport:
            assert status(await talk(transport.url, post(b"<a", length=100))) == 408
    assert not [record for record in caplog.records if record.name.startswith("oncewire")]


@pytest.mark.parametrize("bad", [b"zz\r\nabc\r\n", b"-4\r\nabcd\r\n", b"4\r\nabcdefgh\r\n"])
async def test_a_bad_chunk_is_told_to_the_handler_as_broken(bad: bytes) -> None:
    head = b"POST /msh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n<a/>\r\n"

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        answer = await talk(transport.url, head, bad, pause=0.05, close=True)
        assert not answer or status(answer) == 400
    assert not receiver.taken


@pytest.mark.long
async def test_a_body_that_pauses_too_long_is_answered_408() -> None:
    receiver = Receiver()
    async with endpoint(receiver, limits=HttpLimits(body_pause=0.2)) as transport:
        answer = await talk(transport.url, post(b"<a", length=100))
    assert status(answer) == 408
    assert not receiver.taken


@pytest.mark.long
@pytest.mark.within(20)
async def test_a_body_that_drips_is_answered_408_although_it_never_pauses() -> None:
    limits = HttpLimits(body_pause=60, body_grace=0.3, body_rate=1000)

    receiver = Receiver()
    async with endpoint(receiver, limits=limits) as transport:
        drops = [b"x"] * 60
        answer = await talk(transport.url, post(b"", length=1000), *drops, pause=0.02, heeding=True)
    assert status(answer) == 408
    assert not receiver.taken


async def test_a_steady_body_may_take_longer_than_the_grace_period() -> None:
    limits = HttpLimits(body_pause=5, body_grace=0.3, body_rate=1000)

    receiver = Receiver()
    async with endpoint(receiver, limits=limits) as transport:
        # 200 bytes each 20 ms is ten times the wanted rate, for twice the grace period.
        pieces = [b"y" * 200] * 30
        answer = await talk(transport.url, post(b"", length=6000), *pieces, pause=0.02)
    assert status(answer) == 204
    assert len(receiver.taken[0].body) == 6000


async def test_every_cut_of_a_request_leaves_the_endpoint_whole() -> None:
    request = post(b"<whole/>" * 8, "Content-Type: text/xml")

    receiver = Receiver()
    async with endpoint(receiver) as transport:
        for cut in range(0, len(request), 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
            writer.write(request[:cut])
            await writer.drain()
            reset(writer)
            del reader
        assert status(await talk(transport.url, request)) == 204
    # Only the whole request may have counted.
    assert [taken.body for taken in receiver.taken] == [b"<whole/>" * 8]


# --- connections -------------------------------------------------------------------------------


async def test_good_traffic_goes_on_beside_200_idle_sockets() -> None:
    receiver = Receiver()
    limits = HttpLimits(connections=210)
    async with endpoint(receiver, limits=limits) as transport:
        port = port_of(transport.url)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for number, (_, writer) in enumerate(idle):
            # Half of them say nothing, half begin a header and never end it.
            if number % 2:
                writer.write(b"POST /msh HTTP/1.1\r\nHost: x\r\n")
        outcomes = await asyncio.gather(
            *(transport.send(cargo(b"%d" % n), transport.url, timeout=20) for n in range(100))
        )
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
        for _, writer in idle:
            writer.close()


async def test_when_full_the_longest_idle_makes_room() -> None:
    receiver = Receiver()
    async with endpoint(receiver, limits=HttpLimits(connections=10)) as transport:
        port = port_of(transport.url)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        while transport.connections < 10:
            await asyncio.sleep(0.01)
        leap(2)
        assert status(await talk(transport.url, post(b"<a/>"))) == 204
        # The first of them was closed for it.
        with contextlib.suppress(ConnectionError):
            assert await idle[0][0].read() == b""
        assert not any(reader.at_eof() for reader, _ in idle[1:])
        for _, writer in idle:
            writer.close()


async def test_a_connection_that_has_just_come_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has not had its chance to ask anything; whoever comes next is told to come back."""
    monkeypatch.setattr(listener, "_YOUNG_SECONDS", 1_000.0)

    async with endpoint(Receiver(), limits=HttpLimits(connections=2)) as transport:
        port = port_of(transport.url)
        young = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        while transport.connections < 2:
            await asyncio.sleep(0.01)
        assert status(await talk(transport.url, b"")) == 503
        for _, writer in young:
            writer.close()


async def test_who_is_being_answered_is_not_idle() -> None:
    async def slow(_: Taken) -> Reply:
        # Longer than anybody may be idle; whoever looks for those who are does it now.
        leap(30)
        await asyncio.sleep(0.05)
        return Reply(204)

    limits = HttpLimits(idle_wait=10, header_wait=10)
    async with endpoint(Receiver(slow), limits=limits) as transport:
        assert status(await talk(transport.url, post(b"<a/>"))) == 204


async def test_when_full_of_work_newcomers_are_told_to_come_back() -> None:
    gate = asyncio.Event()

    async def slow(_: Taken) -> Reply:
        await gate.wait()
        return Reply(204)

    receiver = Receiver(slow)
    async with endpoint(receiver, limits=HttpLimits(connections=3)) as transport:
        busy = [asyncio.create_task(talk(transport.url, post(b"x"))) for _ in range(3)]
        while receiver.begun < 3:
            await asyncio.sleep(0.01)
        leap(2)
        outcome = await transport.send(cargo(b"late"), transport.url, timeout=20)
        assert outcome.kind is not OutcomeKind.SENT
        gate.set()
        assert [status(answer) for answer in await asyncio.gather(*busy)] == [204] * 3


async def test_a_header_that_never_ends_is_cut_off() -> None:
    async with endpoint(Receiver(), limits=HttpLimits(header_wait=0.3)) as transport:
        began = time.monotonic()
        drops = [b"X-%d: y\r\n" % number for number in range(40)]
        answer = await talk(transport.url, b"POST /msh HTTP/1.1\r\n", *drops, pause=0.05)
        assert answer == b""
        assert time.monotonic() - began < 30
        while transport.connections:
            await asyncio.sleep(0.01)


async def test_an_idle_connection_is_closed() -> None:
    async with endpoint(Receiver(), limits=HttpLimits(idle_wait=0.3)) as transport:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"<a/>").replace(b"Connection: close\r\n", b""))
        answer = await reader.read()
        assert status(answer) == 204
        writer.close()
        while transport.connections:
            await asyncio.sleep(0.01)


async def test_a_peer_that_does_not_read_its_reply_is_cut_off() -> None:
    big = Reply(200, "text/plain", body=b"z" * 30_000_000)

    async with endpoint(Receiver(big), limits=HttpLimits(idle_wait=0.5)) as transport:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(transport.url))
        writer.write(post(b"<a/>"))
        while not transport.connections:
            await asyncio.sleep(0.01)
        while transport.connections:
            await asyncio.sleep(0.01)
        writer.close()


# --- stopping and failing ----------------------------------------------------------------------


async def test_while_stopping_work_is_finished_and_newcomers_get_503() -> None:
    gate = asyncio.Event()
    begun = asyncio.Event()

    async def slow(_: Taken) -> Reply:
        begun.set()
        await gate.wait()
        return Reply(200, "text/plain", body=b"done")

    async with endpoint(Receiver(slow)) as transport:
        first = asyncio.create_task(talk(transport.url, post(b"x")))
        await begun.wait()
        url = transport.url
        stopping = asyncio.create_task(transport.stop())
        await asyncio.sleep(0.05)
        late = await talk(url, post(b"y"))
        assert status(late) == 503
        assert b"Retry-After: 5" in late
        gate.set()
        assert (await first).endswith(b"done")
        await stopping
        with pytest.raises(ConnectionError):
            await talk(url, post(b"z"))


@pytest.mark.long
async def test_work_that_never_ends_does_not_hold_the_stop() -> None:
    async def forever(_: Taken) -> Reply:
        await asyncio.sleep(3600)
        return Reply(204)

    receiver = Receiver(forever)
    async with endpoint(receiver, limits=HttpLimits(stop_grace=0.2)) as transport:
        hanging = asyncio.create_task(talk(transport.url, post(b"x")))
        while not receiver.begun:
            await asyncio.sleep(0.01)
        await transport.stop()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_a_failing_handler_gives_a_bare_500(caplog: pytest.LogCaptureFixture) -> None:
    async def bad(delivery: Delivery) -> Reply:
        raise RuntimeError("secret detail")

    with caplog.at_level(logging.ERROR):
        async with endpoint(bad) as transport:
            answer = await talk(transport.url, post(b"<payload/>", "Accept: text/html"))
        assert status(answer) == 500
        assert b"secret detail" not in answer
        assert b"Traceback" not in answer
    assert "secret detail" in caplog.text
    assert "<payload/>" not in caplog.text


async def test_a_reply_that_is_no_http_gives_a_bare_500() -> None:
    bad = Reply(200, headers=(("X-Split", "a\r\nInjected: b"),))
    async with endpoint(Receiver(bad)) as transport:
        answer = await talk(transport.url, post(b"<a/>"))
    assert b"Injected" not in answer
    assert status(answer) == 500


async def test_a_taken_port_is_named_with_the_remedy() -> None:
    async with endpoint(Receiver()) as transport:
        second = HttpTransport(HttpServerSettings(port=port_of(transport.url)))
        with pytest.raises(TransportProblem, match=r"cannot listen on 127\.0\.0\.1") as caught:
            await second.start(Receiver())
        assert "free port" in caught.value.remedy


async def test_a_port_that_cannot_be_is_named_with_the_remedy() -> None:
    with pytest.raises(TransportProblem, match="port 700000") as caught:
        await HttpTransport(HttpServerSettings(port=700_000)).start(Receiver())
    assert "from 1 to 65535" in caught.value.remedy


def test_the_address_is_known_only_when_it_listens() -> None:
    transport = HttpTransport(HttpServerSettings())
    with pytest.raises(TransportProblem, match="does not listen"):
        _ = transport.url
    assert HttpTransport().url == ""


async def test_garbage_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with endpoint(Receiver()) as transport:
            for _ in range(20):
                await talk(transport.url, b"\x00\x01garbage\r\n\r\n", close=True)
    shown = [record for record in caplog.records if record.name.startswith("oncewire")]
    assert not shown, json.dumps([record.getMessage() for record in shown])
