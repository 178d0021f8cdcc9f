"""Answer room: how many messages one answer of the control socket has place for."""

from __future__ import annotations

from oncewire.entry.control.language import BODY_MAX, LINE_MAX, PARTS_MAX, line_of
from oncewire.entry.delivery.received_message import message_of
from oncewire.handler.delivering.application import GivenMessage
from oncewire.message.payload import DistantPayload

PLACE = 4096 + 256
"""Bytes that say where a payload lies that does not come along: a path, and where in it."""

FRAME = 1024
"""Bytes of the line that are not about any message."""

NUMBER = 12
"""Bytes that say how long one payload is, and what stands between two of them."""


class AnswerRoom:
    """What is left of an answer's bytes, payloads and line, as messages are put into it."""

    SIZE = BODY_MAX
    PARTS = PARTS_MAX
    LINE = LINE_MAX - FRAME

    def __init__(self) -> None:
        self._left, self._parts, self._line = self.SIZE, self.PARTS, self.LINE

    @property
    def left(self) -> int:
        """Bytes of payloads that still fit."""
        return self._left

    def admit(self, taken: GivenMessage) -> bool:
        """Put a message beside those that were admitted before; False: it does not fit."""
        parts = len(taken.payloads)
        size = sum(
            payload.size for payload in taken.payloads if not isinstance(payload, DistantPayload)
        )
        line = len(line_of(message_of(taken).facts())) + NUMBER * (parts + 1)
        line += PLACE * sum(isinstance(payload, DistantPayload) for payload in taken.payloads)
        if size > self._left or parts > self._parts or line > self._line:
            return False
        self._left, self._parts, self._line = (
            self._left - size,
            self._parts - parts,
            self._line - line,
        )
        return True
