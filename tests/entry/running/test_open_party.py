"""The Python API, with and without a handler that runs already."""

import asyncio
import io
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import oncewire
from oncewire.entry.messages.documents import payloads_of
from oncewire.entry.messages.submitting import SendOptions, lifetime_of
from oncewire.entry.running.open_party import open_party, open_party_blocking
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.message.envelope import Payload
from oncewire.message.instant import HOUR
from oncewire.protocol.states import Outcome
from tests.entry.served import Served


async def test_two_programs_exchange_a_document(pair: Path) -> None:
    async with open_party(pair / "acme") as acme, open_party(pair / "globex") as globex:
        sent = await acme.send("globex", b"<order/>", media_type="application/xml")
        assert await acme.wait(sent.message_id, timeout=60) is Outcome.DELIVERED
        (message,) = await globex.take()
        assert message.message_id == sent.message_id
        assert message.payloads[0].data == b"<order/>"
        assert await globex.confirm(message) is True
        assert await globex.confirm(message) is False
        assert (await globex.status()).counts["in.confirmed"] == 1


async def test_a_closed_party_says_so_and_keeps_nobody_waiting(pair: Path) -> None:
    async with open_party(pair / "acme") as acme:
        assert (await acme.status()).running
    with pytest.raises(NotAllowed, match="the party acme is closed"):
        await asyncio.wait_for(acme.take(), 60)
    with open_party_blocking(pair / "acme") as acme:
        assert acme.status().running
    with pytest.raises(NotAllowed, match="the party acme is closed"):
        acme.take()


async def test_a_party_that_was_not_opened_says_how_it_is(pair: Path) -> None:
    """`async with` is easily forgotten, and so is which of the two doors wants it."""

    with pytest.raises(NotAllowed, match="async with open_party") as told:
        await cast(Any, open_party(pair / "acme")).send("globex", b"<order/>")
    assert "is not open" in str(told.value)
    with pytest.raises(NotAllowed, match="async with open_party"):
        await cast(Any, open_party(pair / "acme"))
    door: Any = open_party(pair / "acme")
    with pytest.raises(NotAllowed, match="async with open_party"), door:
        pass
    with pytest.raises(NotAllowed, match="`with open_party_blocking"):
        async with cast(Any, open_party_blocking(pair / "acme")):
            pass
    with pytest.raises(NotAllowed, match="`with open_party_blocking"):
        cast(Any, open_party_blocking(pair / "acme")).take()
    assert not hasattr(open_party(pair / "acme"), "nothing_like_it")


def test_a_file_that_was_closed_is_no_document(tmp_path: Path) -> None:
    file = tmp_path / "order.xml"
    file.write_bytes(b"<order/>")
    with file.open("rb") as opened:
        pass
    with pytest.raises(InvalidValue, match="document 1 is a file that was closed"):
        payloads_of((opened,))


@pytest.mark.parametrize("limit", [-1, 0])
def test_nobody_takes_fewer_messages_than_one(pair: Path, limit: int) -> None:
    with open_party_blocking(pair / "acme") as acme:
        with pytest.raises(InvalidValue, match=f"limit is {limit}") as told:
            acme.take(limit)
        assert "1 or more" in str(told.value)


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
        assert acme.wait("from-a-program", timeout=60) is Outcome.DELIVERED
        (message,) = globex.take()
        assert (message.action, message.payloads[0].media_type) == ("Order", "text/plain")
        globex.confirm(message)
        # The handler that ran before is asked, not replaced.
        assert acme.status().passing is False


async def test_a_program_needs_the_door_alone(pair: Path) -> None:
    """Two parties in one process: an order, its response, and what goes wrong on the way."""
    told = []
    async with (
        oncewire.open_party(pair / "acme") as acme,
        oncewire.open_party(pair / "globex") as globex,
    ):
        options = oncewire.SendOptions(message_id="order-1", time_to_live=timedelta(hours=1))
        sent = await acme.send("globex", b"<order/>", options=options)
        told.append(await acme.wait(sent.message_id) or "")
        for order in await globex.take():
            own_id = f"re-{order.message_id}"
            response = order.response("Accept", b"<yes/>", message_id=own_id)
            await globex.submit(response)
            await globex.confirm(order)
            told.append(await globex.wait(own_id) or "")
        for message in await acme.take():
            told += [message.ref_to_message_id, message.action]
            await acme.confirm(message)
        try:
            await acme.send("initech", b"<order/>")
        except oncewire.OncewireError as error:
            told += [error.problem, error.remedy]
    assert told == [
        oncewire.Outcome.DELIVERED,
        oncewire.Outcome.DELIVERED,
        "order-1",
        "Accept",
        "there is no partner 'initech'",
        "there are: globex (acme-globex)",
    ]


def test_a_message_needs_no_document(pair: Path) -> None:
    """The standard allows it: the action alone says what is meant."""
    with open_party_blocking(pair / "acme") as acme, open_party_blocking(pair / "globex") as globex:
        sent = acme.send("globex", options=SendOptions(action="Cancel"))
        assert acme.wait(sent.message_id) is Outcome.DELIVERED
        (message,) = globex.take()
        assert (message.action, message.payloads) == ("Cancel", ())
        answered = globex.submit(message.response("Cancelled"))
        globex.confirm(message)
        assert globex.wait(answered.message_id) is Outcome.DELIVERED
        (response,) = acme.take()
        assert (response.action, response.ref_to_message_id) == ("Cancelled", sent.message_id)
        acme.confirm(response)


def test_what_is_no_argument_is_refused_in_words(pair: Path) -> None:
    with open_party_blocking(pair / "acme") as opened:
        acme: Any = opened
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: acme.send("globex", "<order/>"), "give bytes, a path or a file"),
            (lambda: acme.send(b"<order/>"), "name the partner first"),
            (lambda: acme.send("globex", b"x", options={"action": "a"}), "SendOptions"),
            (lambda: acme.send("globex", pair / "gone.xml"), "there is no file"),
            (lambda: acme.send("nobody", b"x"), "there is no partner 'nobody'"),
            (lambda: acme.confirm("x"), "give the message that `take` returned"),
            (lambda: acme.confirm_notice("x"), "give the notice that `notices` returned"),
        ]
        for call, says in wrong:
            with pytest.raises(OncewireError) as refused:
                call()
            assert isinstance(refused.value, InvalidValue | NotHere)
            assert says in str(refused.value)
        assert not any(acme.status().counts.values())


def test_documents_are_bytes_paths_files_or_payloads(tmp_path: Path) -> None:
    file = tmp_path / "a.csv;v1.csv"
    file.write_bytes(b"1,2")
    ready = Payload.of("x@test", "text/plain", b"x")
    with file.open("rb") as opened:
        found = payloads_of([b"raw", file, opened, io.BytesIO(b"y"), ready])
    nothing = "application/octet-stream"
    assert [one.media_type for one in found] == [
        nothing,
        "text/csv",
        "text/csv",
        nothing,
        "text/plain",
    ]
    assert [one.data for one in found] == [b"raw", b"1,2", b"1,2", b"y", b"x"]
    assert [one.media_type for one in payloads_of([b"<a/>", file], "text/xml")] == ["text/xml"] * 2


def test_a_document_of_another_kind_says_what_to_give() -> None:
    for document, says in (
        ("order.xml", "document 1 is a text"),
        (bytearray(b"x"), "document 1 is of type bytearray"),
        (None, "document 1 is of type NoneType"),
        (io.StringIO("x"), "open it with mode 'rb'"),
        (("a@b", "text/xml", b"x"), "document 1 is of type tuple"),
    ):
        with pytest.raises(InvalidValue, match=re.escape(says)):
            payloads_of([document])  # type: ignore[list-item]


def test_a_time_to_live_says_what_it_counts() -> None:
    assert SendOptions(time_to_live="PT1H").time_to_live == "PT1H"
    assert lifetime_of("PT1H") == lifetime_of(timedelta(hours=1)) == HOUR
    assert lifetime_of(timedelta(microseconds=1)) == 1
    assert lifetime_of(None) is None
    for wrong in (
        3600,
        1.5,
        "an hour",
        "",
        "PT0S",
        "-PT1H",
        timedelta(0),
        timedelta(hours=-1),
        b"",
    ):
        with pytest.raises(InvalidValue) as refused:
            SendOptions(time_to_live=wrong)  # type: ignore[arg-type]
        assert refused.value.remedy


@pytest.mark.parametrize("field", ["service", "action", "message_id", "ref_to_message_id"])
def test_an_option_that_is_no_text_is_named(field: str) -> None:
    wrong: dict[str, Any] = {field: 5}
    with pytest.raises(InvalidValue, match=f"{field} is no str: 5"):
        SendOptions(**wrong)


async def test_why_tells_a_program_what_its_application_refused(pair: Path) -> None:
    async with open_party(pair / "acme") as acme, open_party(pair / "globex") as globex:
        sent = await acme.send("globex", b"<order/>", media_type="application/xml")
        assert await acme.wait(sent.message_id, timeout=60) is Outcome.DELIVERED
        local = cast(Any, globex)._reached.verbs
        local.handler.refusals = lambda: {sent.message_id: (3, 1_000_000, "no such product")}
        told = (await globex.why(sent.message_id)).why
        assert "The application refused it 3 times" in told
        assert "no such product" in told
