"""Inbound: a body that streams in, kept in memory if it is small and spooled if it is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from oncewire.errors import OncewireError
from oncewire.handler.node import Node
from oncewire.handler.seal import SPOOL_ABOVE
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.transport.contract import Delivery
from oncewire.wire.parcel import Parcel


class TooLarge(OncewireError):
    """The body is larger than this handler takes."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A body that arrived whole: its bytes, or where in the spool they lie.

    Its file is in use; whoever took the body in lets it go.
    """

    parcel: Parcel
    stored: StoredParcel


async def take_in(node: Node, delivery: Delivery) -> Inbound:
    """Read the body to its end. Nothing of it is believed yet."""
    if delivery.length is not None and delivery.length > node.body_max:
        raise TooLarge(f"a body of {delivery.length} bytes is more than {node.body_max}")
    pieces: list[bytes] = []
    size = 0
    async for chunk in delivery.body:
        pieces.append(chunk)
        size += len(chunk)
        if size > node.body_max:
            raise TooLarge(f"the body has more than {node.body_max} bytes")
    node.kill.reach("read after body")
    headers = tuple(delivery.headers.items())
    body = b"".join(pieces)
    parcel = Parcel(delivery.content_type, body, headers)
    if size <= SPOOL_ABOVE:
        return Inbound(parcel, StoredParcel(parcel.content_type, headers, (body,)))
    node.kill.reach("spool before fsync")
    name, length = await _put(node, pieces)
    node.kill.reach("spool after fsync")
    slices = (SpoolSlice(name, 0, length),)
    return Inbound(parcel, StoredParcel(parcel.content_type, headers, slices))


async def _put(node: Node, pieces: list[bytes]) -> tuple[str, int]:
    """Spool in a thread of its own. A connection may be given up meanwhile, the thread cannot:
    then the file is let go when it is there."""
    spool = node.store.spool
    putting = asyncio.ensure_future(asyncio.to_thread(spool.put, pieces))

    def let_go(done: asyncio.Future[tuple[str, int]]) -> None:
        if not done.cancelled() and done.exception() is None:
            spool.let_go(done.result()[0])

    try:
        return await asyncio.shield(putting)
    except asyncio.CancelledError:
        putting.add_done_callback(let_go)
        raise
