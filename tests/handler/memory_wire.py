"""A transport in memory, and orders of a partner that arrive by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from oncewire.handler.encryption import whole_parcel
from oncewire.transport.contract import AttemptOutcome, Cargo, Delivery, OnDelivery, OutcomeKind
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network

SYNC = '[sync]\nmode = "mshSignalsOnly"\n'


class Wire:
    """A transport in memory: what is sent is read whole, and answered by nobody."""

    name, can_answer = "http", True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.gate = asyncio.Event()

    async def start(self, on_delivery: OnDelivery) -> None:
        self.deliver = on_delivery

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        await self.gate.wait()
        self.sent.append(b"".join([chunk async for chunk in cargo.chunks()]))
        return AttemptOutcome(OutcomeKind.SENT)

    async def stop(self) -> None:
        return


def order(number: int = 1, extra: str = SYNC) -> Parcel:
    """An order of alpha, as it would be on its way now."""
    pair = Network.pair("ebms2", extra, lose_request=lambda post: True)
    pair.send(number)
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing_parcel(f"order-{number}@alpha")
    assert stored is not None
    return whole_parcel(pair.alpha.context, stored)


def delivery_of(parcel: Parcel) -> Delivery:
    async def body() -> AsyncIterator[bytes]:
        yield parcel.body

    headers = dict(parcel.headers)
    return Delivery("http", parcel.content_type, headers, body(), can_answer=True)
