"""What every transport must do, whatever it travels on; subclass and say how to make a pair.

A transport's test file subclasses `TransportContract` and implements `pair`. Checks that need a
reply on the same connection run only where the transport says it can answer (TRN-5).
"""

import asyncio
import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from oncewire.transport.contract import Cargo, Delivery, OutcomeKind, Reply, Transport
from tests.transport.exchange import Receiver, Taken, cargo
from tests.waiting import until

OnDelivery = Callable[[Delivery], Awaitable[Reply]]


class TransportContract(ABC):
    """Subclass per transport."""

    # Parcels that go at once, and megabytes of the largest; a transport may be too slow for more.
    many = 150
    megabytes = 10

    @abstractmethod
    def pair(
        self, receiver: OnDelivery
    ) -> AbstractAsyncContextManager[tuple[Transport, Transport, str]]:
        """A started sender, a started receiver, and the address of the second for the first."""

    @abstractmethod
    def nowhere(self) -> str:
        """A well-formed address at which nobody listens."""

    @pytest.mark.requirement("TRN-5")
    async def test_it_says_whether_it_can_answer(self) -> None:
        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            outcome = await sender.send(cargo(b"<a/>"), address, timeout=20)
            await until(lambda: bool(receiver.taken))
            assert outcome.kind is OutcomeKind.SENT
            assert receiver.taken[0].can_answer is sender.can_answer
            assert receiver.taken[0].transport == sender.name

    async def test_bytes_arrive_as_they_were_sent(self) -> None:
        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            for size in (1, 100, 65_536, 65_537, 1_000_000):
                data = random.Random(size).randbytes(size)
                outcome = await sender.send(cargo(data), address, timeout=30)
                await until(lambda: bool(receiver.taken))
                assert outcome.kind is OutcomeKind.SENT, size
                assert receiver.taken.pop().body == data, size

    async def test_content_type_and_headers_travel(self) -> None:
        kind = 'multipart/related; type="text/xml"; boundary="=_b"; start="<x@y>"'

        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            sent = cargo(b"--=_b--", content_type=kind, SOAPAction='"ebXML"')
            await sender.send(sent, address, timeout=20)
            await until(lambda: bool(receiver.taken))
            taken = receiver.taken[0]
            assert taken.content_type == kind
            found = {name.lower(): value for name, value in taken.headers.items()}
            assert found["soapaction"] == '"ebXML"'

    async def test_a_large_cargo_streams_in_pieces(self) -> None:
        count, piece = self.megabytes * 20, b"x" * 50_000
        whole = hashlib.sha256(piece * count).hexdigest()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield piece

        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            big = Cargo("application/octet-stream", (), count * len(piece), pieces)
            outcome = await sender.send(big, address, timeout=50)
            await until(lambda: bool(receiver.taken))
            assert outcome.kind is OutcomeKind.SENT
            assert receiver.taken[0].digest == whole

    async def test_many_at_once_all_arrive_once(self) -> None:
        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            bodies = [f"message {number}".encode() for number in range(self.many)]
            outcomes = await asyncio.gather(
                *(sender.send(cargo(body), address, timeout=50) for body in bodies)
            )
            await until(lambda: len(receiver.taken) >= len(bodies))
            assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
            assert sorted(taken.body for taken in receiver.taken) == sorted(bodies)

    async def test_nobody_there_is_refused_and_does_not_raise(self) -> None:
        async with self.pair(Receiver()) as (sender, _, _address):
            outcome = await sender.send(cargo(b"<a/>"), self.nowhere(), timeout=20)
            assert outcome.kind is OutcomeKind.REFUSED
            assert outcome.reason

    async def test_a_senseless_address_is_refused_and_does_not_raise(self) -> None:
        async with self.pair(Receiver()) as (sender, _, _address):
            for address in ("", "x", "://", "http://", "no such thing", "ftp:// /"):
                outcome = await sender.send(cargo(b"<a/>"), address, timeout=20)
                assert outcome.kind is OutcomeKind.REFUSED, address
                assert outcome.reason, address

    async def test_stopped_twice_is_stopped(self) -> None:
        async with self.pair(Receiver()) as (sender, receiver, address):
            await receiver.stop()
            await receiver.stop()
            outcome = await sender.send(cargo(b"<a/>"), address, timeout=1)
            # A mailbox or a folder takes what nobody reads at the moment.
            if sender.can_answer:
                assert outcome.kind is not OutcomeKind.SENT

    async def test_a_probe_tells_an_open_way_from_a_closed_one(self) -> None:
        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            assert (await sender.probe(address, timeout=20)).kind is OutcomeKind.SENT
            closed = await sender.probe(self.nowhere(), timeout=20)
            assert closed.kind is OutcomeKind.REFUSED
            assert closed.reason
            assert not receiver.taken, "a probe carries nothing"

    async def test_what_is_not_taken_now_comes_again(self) -> None:
        """Slow or full: a receiver that cannot store keeps nobody's parcel from arriving."""

        asked = 0

        def reply(_taken: Taken) -> Reply:
            nonlocal asked
            asked += 1
            return Reply(503, retry_after=1) if asked == 1 else Reply(204)

        receiver = Receiver(reply)
        async with self.pair(receiver) as (sender, _, address):
            outcome = await sender.send(cargo(b"<a/>"), address, timeout=20)
            if outcome.kind is OutcomeKind.SENT:
                # It lies where the receiver finds it again.
                await until(lambda: len(receiver.taken) == 2)
            else:
                outcome = await sender.send(cargo(b"<a/>"), address, timeout=20)
                assert outcome.kind is OutcomeKind.SENT
                await until(lambda: len(receiver.taken) == 2)

    async def test_a_cargo_that_breaks_off_is_not_delivered(self) -> None:
        """Half-written: what is shorter than it said reaches nobody."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"x" * 1000

        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            outcome = await sender.send(Cargo("text/xml", (), 5000, pieces), address, timeout=20)
            assert outcome.kind is not OutcomeKind.SENT
            await sender.send(cargo(b"<whole/>"), address, timeout=20)
            await until(lambda: bool(receiver.taken))
            assert [taken.body for taken in receiver.taken] == [b"<whole/>"]

    async def test_a_header_never_becomes_two(self) -> None:
        receiver = Receiver()
        async with self.pair(receiver) as (sender, _, address):
            for value in ("a\r\nBcc: x@y", "a\nX: y", "a\0b", "a\r.\r\nQUIT"):
                bad = cargo(b"<a/>", SOAPAction=value)
                outcome = await sender.send(bad, address, timeout=20)
                assert outcome.kind is not OutcomeKind.SENT, value
            assert not receiver.taken

    @pytest.mark.requirement("SYNC-1")
    async def test_a_reply_comes_back_on_the_same_connection(self) -> None:
        receiver = Receiver(lambda taken: Reply(200, "text/xml", body=b"re:" + taken.body))
        async with self.pair(receiver) as (sender, _, address):
            if not sender.can_answer:
                return
            outcome = await sender.send(cargo(b"hello"), address, timeout=20)
            assert outcome.reply is not None
            assert outcome.reply.body == b"re:hello"
            assert outcome.reply.content_type == "text/xml"
