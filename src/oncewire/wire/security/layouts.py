"""Layouts: what was learned of envelopes that we signed; the next one of the same markup is laid
out alike, with its own texts (`pattern`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.wire.security.layout import Laid, info_octets, laid_out
from oncewire.wire.security.pattern import Pattern, Perforated, hole_of, pattern_of, perforated
from oncewire.wire.security.places import Places

KINDS_MAX = 256
"""Kinds of envelopes that we send, whomever to: only their markup counts."""


class _Layout:
    """How one envelope is laid out."""

    __slots__ = ("_end_tag", "_first", "_manifest", "_octets")

    def __init__(self, first: Laid, marked: Laid, end_tag: bytes) -> None:
        self._first, self._end_tag = first, end_tag
        self._octets = Pattern(marked.octets)
        self._manifest = [
            (uri, hole_of(uri.removeprefix("cid:").encode())) for uri in marked.manifest
        ]

    def lay(self, envelope: bytes, holes: Sequence[bytes]) -> Laid:
        """Another envelope of the same markup."""
        first = self._first
        return Laid(
            self._octets.octets(holes),
            tuple(
                [
                    uri if hole is None else "cid:" + holes[hole].decode("ascii")
                    for uri, hole in self._manifest
                ]
            ),
            first.exclusion,
            first.context,
            # No text can hold it.
            envelope.index(self._end_tag),
        )


class Layouts:
    """The bounded table of them, and of how a SignedInfo becomes octets."""

    def __init__(self) -> None:
        self._envelopes: Places[_Layout] = Places(of_one=KINDS_MAX)
        self._infos: Places[Pattern] = Places(of_one=KINDS_MAX)

    def __len__(self) -> int:
        return len(self._envelopes) + len(self._infos)

    def laid(self, envelope: bytes, method: str) -> Laid:
        """What `layout.laid_out` says."""
        document = perforated(envelope)
        known = self._envelopes.find(method, document)
        if known is not None:
            return known.lay(envelope, document.holes)
        first = laid_out(envelope, method)
        if self._envelopes.is_due(method):
            layout = _layout_of(document, first, method)
            if layout is not None:
                self._envelopes.keep(method, document, layout)
        return first

    def info_octets(self, info: bytes, method: str) -> bytes:
        """What `layout.info_octets` says."""
        document = perforated(info)
        known = self._infos.find(method, document)
        if known is not None:
            return known.octets(document.holes)
        if self._infos.is_due(method):
            pattern = pattern_of(document, lambda other: info_octets(other, method))
            if pattern is not None:
                self._infos.keep(method, document, pattern)
        return info_octets(info, method)


def _layout_of(document: Perforated, first: Laid, method: str) -> _Layout | None:
    """What can be learned of an envelope; None where it is no use, or says otherwise."""
    envelope = document.document
    end_tag = envelope[first.insert_at :].partition(b">")[0] + b">"
    if not document.is_plain or envelope.count(end_tag) != 1:
        return None
    layout = _Layout(first, laid_out(document.marked(), method), end_tag)
    return layout if layout.lay(envelope, document.holes) == first else None
