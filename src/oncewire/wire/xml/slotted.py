"""Templates: what every message of an agreement has in common, checked and written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from oncewire.message import Header
from oncewire.message.ids import PartyId

TEMPLATES_MAX = 1024
"""Agreements and actions at work at the same time; when there are more, all are written anew."""

_Ids: TypeAlias = tuple[PartyId, ...]
_Key: TypeAlias = tuple[int, str | None, int, str | None, str, str | None, str | None, str | None]


class Templates:
    """The texts of a dialect around what differs in each message, by parties, agreement, service
    and action. `write` makes them, and raises for what may not be written."""

    def __init__(self, write: Callable[[Header], tuple[str, str]]) -> None:
        self._write = write
        self._known: dict[_Key, tuple[str, str, _Ids, _Ids]] = {}

    def of(self, header: Header) -> tuple[str, str]:
        """What stands before the ConversationId, and what stands behind it."""
        sender, receiver, service = header.from_party, header.to_party, header.service
        # By which ids they are and not by what these say: that takes longer to compare than to
        # write. They are kept, so that no others can take their place in memory.
        key = (
            id(sender.ids),
            sender.role,
            id(receiver.ids),
            receiver.role,
            header.cpa_id,
            header.action,
            None if service is None else service.value,
            None if service is None else service.type,
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= TEMPLATES_MAX:
                self._known.clear()
            known = self._known[key] = (*self._write(header), sender.ids, receiver.ids)
        return known[0], known[1]
