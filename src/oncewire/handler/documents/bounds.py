"""Bounds: how large a document may become here, by the handler's own limits and by what two parties
agreed, whichever is less."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.errors import InvalidValue
from oncewire.protocol.terms import Terms
from oncewire.wire.limits import Limits, beyond

_AGREED = {
    "document_bytes": ("max_document", "payload.max_document"),
    "document_parts": ("max_parts", "payload.max_parts"),
    "compression_ratio": ("max_ratio", "payload.max_ratio"),
    "gathered_bytes": ("quota", "payload.quota"),
}
"""Of a limit: the term that may say less, and the key that it is agreed by."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one agreement, and what each of them is called."""

    limits: Limits
    names: dict[str, str]

    @classmethod
    def of(cls, limits: Limits, terms: Terms) -> Bounds:
        """Of a handler, under these terms."""
        names: dict[str, str] = {}
        for limit, (term, key) in _AGREED.items():
            agreed = getattr(terms, term)
            if agreed is not None and agreed < getattr(limits, limit):
                limits = replace(limits, **{limit: agreed})
                names[limit] = key
        return cls(limits, names)

    def check(self, limit: str, found: int, what: str, *, mime: bool = False) -> None:
        """Refuse more than a bound; `what`: in words, with the number."""
        bound: int = getattr(self.limits, limit)
        if found > bound:
            raise beyond(what, self.names.get(limit, limit), bound, mime=mime)


def check_to_send(limits: Limits, terms: Terms, size: int, parts: int) -> None:
    """Refuse a document that its receiver would refuse; `parts` 0: not counted yet."""
    bounds = Bounds.of(limits, terms)
    for limit, found, what in (
        ("document_bytes", size, "bytes"),
        ("document_parts", parts, "parts"),
    ):
        bound: int = getattr(bounds.limits, limit)
        if found > bound:
            name = bounds.names.get(limit, limit)
            raise InvalidValue(
                f"the document has {found:,} {what}, and no more than {bound:,} are taken ({name})",
                remedy=f"agree on more ({_AGREED[limit][1]}), or send it as several documents",
            )
