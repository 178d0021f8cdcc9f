"""Circles: a message that came through a hub before, and one that has made too many hops."""

from __future__ import annotations

import hashlib

from oncewire.agreement.agreement import Agreement, PartyTerms
from oncewire.errors import Inconsistent
from oncewire.handler.source import Source
from oncewire.message.envelope import Message
from oncewire.message.ids import Party
from oncewire.message.routing import RoutingHeader

HOPS_MAX = 16
"""Hops of one message; more handlers than that are not between two parties, but in a circle."""
WAY = "//Header/RoutingHeaderList"


def check_way(message: Message, before: Agreement, ahead: Agreement | None, source: Source) -> None:
    """Refuse to send a message on that would come here again, or that comes from nowhere near.

    The hops that it names tell; where its format names only the last one, or none, what tells is
    that it comes from whom it would be sent to.
    """
    if len(message.routing) > HOPS_MAX:
        raise Inconsistent(
            f"it has made {len(message.routing)} hops, and no more than {HOPS_MAX} are believed",
            location=WAY,
            remedy="look for hubs that send it to each other",
        )
    passed = any(_is_sender(before.own, hop) for hop in message.routing)
    if passed or (ahead is not None and _comes_back(message, before, ahead, source)):
        raise Inconsistent(
            "it was sent on from here before, and has come back: it goes in a circle",
            location=WAY,
            remedy="compare where each hub sends messages for its To Party",
        )


def _is_sender(side: PartyTerms, hop: RoutingHeader) -> bool:
    if hop.sender_uri is not None and hop.sender_uri == side.handler_uri:
        return True
    return hop.sender_id is not None and side.is_named_by(Party((hop.sender_id,)))


def _comes_back(message: Message, before: Agreement, ahead: Agreement, source: Source) -> bool:
    if ahead.partner is before.partner or ahead is before:
        return False
    if message.routing and _is_sender(ahead.partner, message.routing[-1]):
        return True
    if source.certificate is None:
        return False
    shown = hashlib.sha256(source.certificate).hexdigest()
    there, here = ahead.partner.client_certificates, before.partner.client_certificates
    return shown in there and shown not in here
