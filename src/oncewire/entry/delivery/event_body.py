"""Event body: the JSON of an event, of which large documents are read as it is posted."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from oncewire.message.payload import DistantPayload, Payload

PIECE = 3 * 256 * 1024
"""Bytes of a document that become base64 at once; a multiple of three, so that the pieces join."""


class EventBody:
    """The bytes of an event, in pieces. They can be read as often as somebody asks, and are the
    same each time: they are signed before they are sent."""

    def __init__(self, event: Mapping[str, Any], gaps: Mapping[str, Payload]) -> None:
        """`gaps`: by the texts that stand in the event where the base64 of these belongs."""
        text = json.dumps(event, ensure_ascii=False)
        self._parts: list[bytes | Payload] = []
        for gap, payload in gaps.items():
            before, _, text = text.partition(gap)
            self._parts += [before.encode(), payload]
        self._parts.append(text.encode())
        self.size = sum(
            len(part) if isinstance(part, bytes) else 4 * ((part.size + 2) // 3)
            for part in self._parts
        )

    def pieces(self) -> Iterator[bytes]:
        """All of it; blocks while documents are read."""
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            with part.open() as file:
                while piece := file.read(PIECE):
                    yield base64.b64encode(piece)

    async def sent(self) -> AsyncIterator[bytes]:
        """The same, read beside the event loop."""
        pieces = self.pieces()
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece


def as_base64(payload: Payload, gaps: dict[str, Payload]) -> str:
    """What stands in an event for the bytes of a document: themselves, or a gap for them."""
    if not isinstance(payload, DistantPayload):
        return base64.b64encode(payload.data or b"").decode()
    gap = secrets.token_hex(32)
    gaps[gap] = payload
    return gap
