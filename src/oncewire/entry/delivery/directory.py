"""Delivery into a directory.

Guarantee: a message becomes one set of files whose names follow from its sender and MessageId,
and end in what its sender called each document (`file_name`); so handing it over again writes the
same files again and changes nothing. Each file
is on the disk before it gets its name, and the `.message.json` comes last: who sees it has
everything it names. A program that removes files after its work sees a name again only if the
handler died between writing them and noting that; it then says `redelivered`. In order per
channel: the next message is written when this one is confirmed. A message of ours that failed
becomes a `.failure.json`, which is written in the same way until that is noted. Others may write
into the folder, too: nothing is written through a link or into a file that is there (`placed`).
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from pathlib import Path
from typing import BinaryIO

from oncewire.entry.delivery.received_message import (
    ReceivedMessage,
    message_of,
    notice_facts,
    payload_facts,
)
from oncewire.entry.files import UNFINISHED, clear_folder, make_folder, placed
from oncewire.handler.actions import Notice
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.message.envelope import Payload
from oncewire.store.spool import WriteThrough

PIECE = 1024 * 1024
"""Bytes of a document that are in memory while it is written."""

_OURS = (".message.json", ".failure.json", UNFINISHED)
# A name must not depend on the machine's own table of media types.
_ENDINGS = {
    "application/xml": ".xml",
    "text/xml": ".xml",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/edi-x12": ".x12",
    "application/edifact": ".edi",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/html": ".html",
}


def name_of(message: ReceivedMessage) -> str:
    """What the files' names begin with; nothing a partner writes can name another file."""
    key = f"{message.sender}\0{message.message_id}"
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def put_message(folder: Path, message: ReceivedMessage) -> tuple[Path, ...]:
    """Write a message's payloads and then its facts; the facts' file is the last one."""
    name = name_of(message)
    written, described = [], []
    for number, payload in enumerate(message.payloads, 1):
        path = folder / f"{name}.{number}{_ending(payload)}"
        put_file(path, payload.open())
        written.append(path)
        described.append({**payload_facts(payload), "file": path.name})
    facts = {**message.facts(), "payloads": described}
    path = folder / f"{name}.message.json"
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    put_file(path, io.BytesIO(text.encode() + b"\n"))
    written.append(path)
    return tuple(written)


def _ending(payload: Payload) -> str:
    """What tells people what a file is: its sender's name for it, made safe, else its kind."""
    if payload.file_name:
        ending = f".{payload.file_name}"
        # No document passes for what is written about documents.
        return f"{ending}.bin" if ending.lower().endswith(_OURS) else ending
    kind = payload.media_type.partition(";")[0].strip().lower()
    return _ENDINGS.get(kind, ".bin")


def put_notice(folder: Path, notice: Notice) -> Path:
    """Write `....failure.json`, named by the message that failed: the last word on it stands."""
    key = hashlib.sha256(notice.message_id.encode()).hexdigest()[:40]
    path = folder / f"{key}.failure.json"
    text = json.dumps(notice_facts(notice), indent=2, ensure_ascii=False)
    put_file(path, io.BytesIO(text.encode() + b"\n"))
    return path


def put_file(path: Path, source: BinaryIO) -> None:
    """A file that is whole and on the disk when it gets its name; put again, it is the same."""
    # Under a name of its own each time: a thread that is not awaited any more may still write
    # the same message.
    with source, placed(path) as file:
        through = WriteThrough(file, "delivery")
        try:
            while piece := source.read(PIECE):
                file.write(piece)
                through.wrote(len(piece))
        finally:
            through.settle()


class Directory:
    """An application that finds its messages as files. See the module for the guarantee."""

    batch = 16
    hears = True

    def __init__(self, folder: Path) -> None:
        self.folder = make_folder(folder)
        # What a process that was killed had begun to write is written again.
        clear_folder(self.folder)

    async def deliver(self, taken: GivenMessage) -> None:
        """Write the files; returning means that they are on the disk under their names."""
        await asyncio.to_thread(put_message, self.folder, message_of(taken))

    async def notify(self, notice: Notice) -> None:
        """A failure becomes a file too; returning means that it is on the disk."""
        await asyncio.to_thread(put_notice, self.folder, notice)
