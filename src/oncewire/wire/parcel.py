"""Parcel: one message as a transport carries it, bytes and the headers around them."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.message.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Parcel:
    """What a POST, a mail or a file holds: a Content-Type, a body, and other headers.

    `headers` are the transport's own (SOAPAction, MIME-Version, Subject). Content-Type is
    kept apart because nothing can be read without it.
    """

    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def header(self, name: str) -> str | None:
        """The first header of that name, whatever its case."""
        wanted = name.lower()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value
        return None
