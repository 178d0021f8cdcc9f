"""Several messages in one body: multipart/mixed of whole messages (SYNC-8, C30).

The sync paper lets an acknowledgement and a response come back together, merged into one
header or one after the other. Merged is what we write by default; this is the other form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from oncewire.errors import EbxmlError
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.headers import PartHeaders, parameters
from oncewire.wire.mime.multipart import MultipartReader
from oncewire.wire.parcel import Parcel
from oncewire.wire.refusal import ReadFault

BUNDLE_TYPE = "multipart/mixed"
"""The media type of several messages in one body."""

# By content: some send a header as text/xml, some as application/xml, some with no type.
_SNIFF = 4096
_ENVELOPES = (b":Envelope", b"<Envelope", b"ebXMLHeader")


class _Collector:
    """Keeps each part whole, multiparts included."""

    def __init__(self) -> None:
        self.parts: list[tuple[PartHeaders, list[bytes]]] = []

    def part_started(self, headers: PartHeaders) -> bool:
        self.parts.append((headers, []))
        # A multipart/related inside is one whole message, and is read as such later.
        return False

    def part_data(self, data: bytes) -> None:
        self.parts[-1][1].append(data)

    def part_ended(self, _begin: int | None, _end: int) -> None:
        return


def unbundle(parcel: Parcel, limits: Limits) -> tuple[Parcel, ...]:
    """The parcels of a concatenation, or the parcel itself when it is one message."""
    media_type, params = parameters(parcel.content_type)
    if media_type != BUNDLE_TYPE:
        return (parcel,)
    collector = _Collector()
    try:
        reader = MultipartReader(params.get("boundary", ""), collector, limits)
        reader.feed(parcel.body)
        reader.finish()
    except EbxmlError as error:
        raise ReadFault((error,)) from None
    parts = [(headers, b"".join(pieces)) for headers, pieces in collector.parts]
    whole = [
        headers.media_type == "multipart/related" or _is_header(content)
        for headers, content in parts
    ]
    # Two headers at least, or one that is a multipart of its own: anything less is one message.
    alone = len(whole) == 1 or whole.count(True) < 2
    if not whole or not all(whole) or (alone and parts[0][0].media_type != "multipart/related"):
        # One header and its payloads under the wrong subtype: mail gateways do that.
        return (parcel,)
    if len(parts) > limits.bundled:
        many = beyond(
            f"{len(parts)} messages come as one body", "bundled", limits.bundled, mime=True
        )
        raise ReadFault((many,))
    return tuple(
        Parcel(headers.content_type, content, headers.others) for headers, content in parts
    )


def _is_header(content: bytes) -> bool:
    start = content[:_SNIFF]
    return start.lstrip()[:1] == b"<" and any(mark in start for mark in _ENVELOPES)


def bundle(parcels: Sequence[Parcel]) -> Parcel:
    """Whole messages one after the other in one body."""
    digest = hashlib.sha256(b"\x00".join(parcel.body for parcel in parcels)).hexdigest()[:40]
    boundary = f"=_{digest}_all"
    pieces: list[bytes] = []
    for parcel in parcels:
        # Each message's own transport headers go along as MIME headers: SOAPAction stays with its
        # message.
        others = "".join(f"{name}: {value}\r\n" for name, value in parcel.headers)
        head = f"--{boundary}\r\nContent-Type: {parcel.content_type}\r\n{others}\r\n"
        pieces.extend((head.encode(), parcel.body, b"\r\n"))
    pieces.append(f"--{boundary}--\r\n".encode())
    return Parcel(f'{BUNDLE_TYPE}; boundary="{boundary}"', b"".join(pieces))
