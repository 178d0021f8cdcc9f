"""Application: the software behind the handler, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from oncewire.handler.actions import Notice
from oncewire.handler.delivering.accepted import accepted, as_agreed
from oncewire.handler.node import Node
from oncewire.handler.sending.submit import Submission
from oncewire.journal.identity import identity_digest
from oncewire.message.fault import Error
from oncewire.message.header import Header
from oncewire.message.payload import DistantPayload, Payload, Reference
from oncewire.store.records import StoredIncoming


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """One message as the application gets it."""

    sender: str
    message_id: str
    header: Header
    payloads: tuple[Payload, ...]
    # It was given before, and the handler was never told that it arrived.
    redelivered: bool
    # The Manifest: what is said of the payloads, and of parts in other messages (`mid:`).
    references: tuple[Reference, ...] = ()
    # Messages of one channel are handed over in order.
    channel: str | None = None
    # What its sender warns of beside the document (ERR-10).
    warnings: tuple[Error, ...] = ()
    # Identity digest of exactly this, computed from its bytes (S15).
    digest: str = ""

    @classmethod
    def of(cls, node: Node, stored: StoredIncoming) -> GivenMessage:
        """Of the stored bytes: what was accepted is what is handed over."""
        message = accepted(node, stored)
        # The identity is what the From Party wrote, by whatever names it goes here.
        given = replace(message, payloads=tuple(map(_measured, message.payloads)))
        return cls(
            stored.incoming.sender,
            stored.incoming.message_id,
            as_agreed(node, stored, message.header),
            message.payloads,
            stored.incoming.hand_overs > 1,
            message.manifest,
            stored.incoming.channel,
            () if message.error_list is None else message.error_list.errors,
            identity_digest(given),
        )


def _measured(payload: Payload) -> Payload:
    """The payload with the digest of the bytes that it really has. What lies in the spool was
    proved to have it."""
    if isinstance(payload, DistantPayload) or payload.data is None:
        return payload
    return Payload.of(payload.content_id, payload.media_type, payload.data)


class Application(Protocol):
    """An application that is called. Returning from `deliver` means: I have it."""

    # How many messages it takes at a time.
    batch: int
    # Whether it is called when a message of its own fails; otherwise the notice waits until
    # somebody takes it.
    hears: bool

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission] | None:
        """Take a message; raise to get it again later.

        What it returns is submitted in the commit that confirms the message: answers leave
        exactly once for each message, whatever crashes in between.
        """

    async def notify(self, notice: Notice) -> None:
        """Hear that a message of its own failed. Returning means: I know; raise to be told
        again later, under the same `notice_id`."""
