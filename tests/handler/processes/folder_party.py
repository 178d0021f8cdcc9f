"""Alpha, or beta by the name of a reader, with a folder on a server as its only transport."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.files.transport import FileTransport
from tests.transport.file_servers import ftp_settings, sftp_settings

NAMES = ("alpha", "beta")

# Nothing is resent: a copy of a message would be another parcel, and the other reader's store
# does not know the message.
PATIENT = '[delivery]\ntimeout = "PT1H"\nretry_interval = "PT1H"\nretries = 1\n'


def agreement(own: str, addresses: dict[str, str]) -> str:
    partner = NAMES[1 - NAMES.index(own)]
    way = addresses[own].split(":")[0]
    text = 'cpa_id = "alpha-beta"\nprofile = "ebms2"\n'
    for side, name in (("own", own), ("partner", partner)):
        text += f'[{side}]\nparty_id = "urn:test:{name}"\n{way} = "{addresses[name]}"\n'
    return text + PATIENT


def over_files(inbox: str, reader: str, known: Path) -> FileTransport:
    if inbox.startswith("sftp:"):
        return sftp_transport(**sftp_settings(known, inbox=inbox, reader=reader))
    return ftp_transport(**ftp_settings(inbox=inbox, reader=reader))


class Counted:
    """A transport that knows how its attempts ended."""

    can_answer = False

    def __init__(self, inner: FileTransport) -> None:
        self._inner, self.name = inner, inner.name
        self.ended: Counter[OutcomeKind] = Counter()

    async def start(self, on_delivery: OnDelivery) -> None:
        await self._inner.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        outcome = await self._inner.send(cargo, address, timeout=timeout)
        self.ended[outcome.kind] += 1
        return outcome

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        return await self._inner.probe(address, timeout=timeout)

    async def stop(self) -> None:
        await self._inner.stop()


def handler(
    folder: Path, own: str, reader: str, addresses: dict[str, str], known: Path
) -> tuple[Handler, Counted]:
    store = SqliteStore(folder / f"{reader}.db", node=reader)
    agreements = Agreements([read_toml(agreement(own, addresses))])
    transport = Counted(over_files(addresses[own], reader, known))
    node = HandlerContext(reader, store, agreements, RealWorld())
    return Handler(node, {transport.name: transport}), transport


def read_on(folder: Path, reader: str, addresses: dict[str, str], known: Path) -> None:
    """Be beta, by that name of a reader, until somebody ends us."""

    async def work() -> None:
        made, _ = handler(folder, "beta", reader, addresses, known)
        async with made as beta:
            while True:
                for given in await beta.take(16):
                    await beta.confirm(given.sender, given.message_id)
                await asyncio.sleep(0.02)

    asyncio.run(work())
