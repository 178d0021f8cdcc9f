"""Parcel: one message as a transport carries it, bytes and the headers around them."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from oncewire.message.envelope import Message
from oncewire.message.form import Dialect


class Parcel(Struct, frozen=True):
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


def as_file(parcel: Parcel, *, bare: bool = False) -> bytes:
    """The parcel as a file that `message decode` reads: with its headers, or the body alone."""
    if bare:
        return parcel.body
    lines = [f"Content-Type: {parcel.content_type}"]
    lines += [f"{name}: {value}" for name, value in parcel.headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + parcel.body


# Received: one message as it came, the values and the bytes side by side.


class PartPlace(NamedTuple):
    """Where in the body the content of a part lies, still encoded as it travelled."""

    offset: int
    length: int
    # Its Content-Transfer-Encoding.
    encoding: str = ""


class Received(Struct, frozen=True):
    """What a reader hands over. Signatures are checked, and hops spliced, over `envelope`."""

    message: Message
    parcel: Parcel
    # The root part, decoded, byte for byte.
    envelope: bytes
    dialect: Dialect
    # Oddities that were tolerated, in words.
    notes: tuple[str, ...] = ()
    # Where the header breaks the official schema; empty when it does not or is not checked.
    schema_problems: tuple[str, ...] = ()
    # Whether a ds:Signature is present; whether it holds is another module's question.
    signed: bool = False
    # Charset of the root part, when its MIME headers name one.
    charset: str | None = None
    # False while payloads are still arriving.
    complete: bool = True
    # False when the closing boundary was missing: the end may have been cut off.
    closed: bool = True
    # Characters that do not belong into base64 were skipped: whether they may be is agreed.
    odd_base64: bool = False
    # Content-ID, algorithm and digest of parts that passed by, where a signature names an
    # algorithm other than SHA-256.
    extra_digests: tuple[tuple[str, str, bytes], ...] = ()
    # Where each payload as it came lies in the parcel's body, in their order; None where it is
    # nowhere in one piece (a part of a container that is itself encoded).
    places: tuple[PartPlace | None, ...] = ()
    # Whether its header was read by a template; it says the same either way.
    by_template: bool = False
