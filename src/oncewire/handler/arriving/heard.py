"""Heard: what came back on a connection of ours, and what it says.

Whoever answers us may say as much as whoever sends us something, and is trusted no more. So what
is long is read beside the event loop here too, under the same deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from oncewire.errors import MimeProblem
from oncewire.handler.arriving.inbound import READ_AT_ONCE
from oncewire.handler.node import Node
from oncewire.handler.reading import TooLong
from oncewire.handler.sealing.intact import is_intact
from oncewire.transport.contract import AttemptOutcome
from oncewire.wire.codec import read_all
from oncewire.wire.differential.moulds import Moulds
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.refusal import ReadFault


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply that was read: its messages, or why there are none."""

    parcel: Parcel
    found: tuple[Received, ...] | ReadFault

    def messages(self) -> tuple[Received, ...]:
        """The messages, or the ReadFault that says why there are none."""
        if isinstance(self.found, ReadFault):
            raise self.found
        return self.found


Reply: TypeAlias = Parcel | Heard
"""What came back; a long one is read already."""


def heard(reply: Reply, limits: Limits, moulds: Moulds) -> Heard:
    """A reply and what it says: a message, or several in one body (SYNC-8)."""
    if isinstance(reply, Heard):
        return reply
    try:
        if not is_intact(reply):
            raise ReadFault((MimeProblem("the reply was damaged on its way"),))
        return Heard(reply, read_all(reply, limits, moulds=moulds))
    except ReadFault as fault:
        # The frames it passed hold what came; nobody needs them.
        fault.__traceback__ = fault.__context__ = None
        return Heard(reply, fault)


async def hear(node: Node, outcome: AttemptOutcome) -> Heard | None:
    """What came back with an attempt, if it has a body."""
    reply = outcome.reply
    if reply is None or not reply.body:
        return None
    parcel = Parcel(reply.content_type, reply.body, reply.headers)
    if len(parcel.body) <= READ_AT_ONCE:
        return heard(parcel, node.limits, node.moulds)
    try:
        reading = node.reading_room.do(lambda: heard(parcel, node.limits, node.moulds))
        return (await reading)[0]
    except TooLong as problem:
        return Heard(parcel, ReadFault((MimeProblem(problem.problem),)))
