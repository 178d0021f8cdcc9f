"""A server that is away is two lines of the log: when it goes, and when it is back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from oncewire.transport.contract import Delivery, Outage, Reply
from oncewire.transport.files.remote import Place
from oncewire.transport.files.transport import FolderReader
from oncewire.transport.smtp.transport import MailboxReader, MailboxSettings


def test_each_outage_has_a_beginning_and_an_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage(logging.getLogger("oncewire.test"))
    outage.ends("it is back")
    for number in range(1, 3):
        for _ in range(50):
            outage.begins("it is away", problem="refused")
        outage.ends("it is back")
        outage.ends("it is back")
        told = [record.getMessage() for record in caplog.records]
        assert told == ["it is away", "it is back after 0 s"] * number


async def nobody(_delivery: Delivery) -> Reply:
    raise AssertionError


def mailbox() -> Any:
    return MailboxReader(MailboxSettings("127.0.0.1", "user", "secret", 1, every=0.001))


def folder() -> Any:
    place = Place("sftp", "127.0.0.1", 1, "/in")
    return FolderReader("sftp", place, None, "reader", every=0.001)  # type: ignore[arg-type]


@pytest.mark.parametrize(("made", "what"), [(mailbox, "a mailbox"), (folder, "a folder")])
async def test_whoever_looks_again_and_again_tells_both(
    made: Any, what: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    looks = 0

    done = asyncio.Event()

    async def look(_door: object) -> None:
        nonlocal looks
        looks += 1
        if looks > 25:
            done.set()
        elif looks > 5 and looks != 15:
            raise ConnectionRefusedError("nobody listens")

    reader = made()
    monkeypatch.setattr(reader, "look", look)
    reader.start(nobody)
    await done.wait()
    await asyncio.sleep(0.01)
    await reader.stop()
    told = [record.getMessage() for record in caplog.records]
    begins, ends = f"{what} cannot be read: nobody listens", f"{what} can be read again after 0 s"
    assert told == [begins, ends, begins, ends]
