"""The Python API, with and without a handler that runs already."""

import asyncio
from pathlib import Path

import pytest

from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.running.open_party import open_party, open_party_blocking, payloads_of
from oncewire.errors import NotAllowed
from oncewire.message.payload import Payload
from oncewire.protocol.states import OutgoingState
from tests.entry.served import Served


def test_two_programs_exchange_a_document(pair: Path) -> None:
    async def exchange() -> None:
        async with open_party(pair / "acme") as acme, open_party(pair / "globex") as globex:
            sent = await acme.send("globex", b"<order/>", media_type="application/xml")
            assert await acme.wait(sent.message_id, timeout=60) is OutgoingState.DELIVERED
            (message,) = await globex.take()
            assert message.message_id == sent.message_id
            assert message.payloads[0].data == b"<order/>"
            assert await globex.confirm(message) is True
            assert await globex.confirm(message) is False
            assert (await globex.status()).counts["in.confirmed"] == 1

    asyncio.run(exchange())


def test_a_closed_party_says_so_and_keeps_nobody_waiting(pair: Path) -> None:
    async def too_late() -> None:
        async with open_party(pair / "acme") as acme:
            assert (await acme.status()).running
        with pytest.raises(NotAllowed, match="the party acme is closed"):
            await asyncio.wait_for(acme.take(), 5)

    asyncio.run(too_late())
    with open_party_blocking(pair / "acme") as acme:
        assert acme.status().running
    with pytest.raises(NotAllowed, match="the party acme is closed"):
        acme.take()


def test_a_program_without_an_event_loop(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "order.txt"
    file.write_text("an order")
    with (
        open_party_blocking(served.folder / "acme") as acme,
        open_party_blocking(served.folder / "globex") as globex,
    ):
        options = SendOptions(message_id="from-a-program", action="Order")
        for _ in range(2):
            sent = acme.send("globex", file, options=options)
        assert sent.repeated is True
        assert acme.wait("from-a-program", timeout=60) is OutgoingState.DELIVERED
        (message,) = globex.take()
        assert (message.action, message.payloads[0].media_type) == ("Order", "text/plain")
        globex.confirm(message)
        # The handler that ran before is asked, not replaced.
        assert acme.status().passing is False


def test_documents_are_bytes_files_or_payloads(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"1,2")
    ready = Payload.of("x@test", "text/plain", b"x")
    found = payloads_of([b"raw", file, ready], "")
    assert [one.media_type for one in found] == [
        "application/octet-stream",
        "text/csv",
        "text/plain",
    ]
    assert [one.data for one in found] == [b"raw", b"1,2", b"x"]
