"""Reader: a message read while it arrives, header first, payloads passed on piece by piece.

The header is judged before the first payload byte is kept anywhere, so the handler can look
up the agreement, apply its limits and choose where the payloads go.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from msgspec import structs

from oncewire.errors import EbxmlError, InvalidValue, MimeProblem, SoapFault
from oncewire.message import Message, Payload
from oncewire.message.form import Validation
from oncewire.wire import header
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond
from oncewire.wire.mime.multipart import (
    Decoder,
    Identity,
    MultipartReader,
    PartHeaders,
    Work,
    bare_id,
    decoder,
    parameters,
)
from oncewire.wire.parcel import Parcel, PartPlace, Received
from oncewire.wire.refusal import PartialHeader, ReadFault
from oncewire.wire.security.references import digest_names

# Whether every reference of the Manifest finds its part (ebMS 2.0 §3.2.2).


# What RFC 2392 lets stand unescaped in a cid: URL, and the slash some handlers write.
_SAFE = "@!$&'()*+,;=:/~-._"
_PLAIN = re.compile(r"[A-Za-z0-9@._-]+\Z")


def reference_to(content_id: str) -> str:
    """The cid: URL of a part."""
    if _PLAIN.match(content_id):
        return "cid:" + content_id
    return "cid:" + quote(content_id, safe=_SAFE)


def part_of(href_id: str, content_ids: list[str] | tuple[str, ...]) -> str | None:
    """The Content-ID that a cid: URL (without its scheme) names, escaped or not."""
    # As written first: a Content-ID may itself hold a percent sign.
    if href_id in content_ids:
        return href_id
    plain = unquote(href_id)
    return plain if plain in content_ids else None


def resolve_references(message: Message, content_ids: list[str], notes: list[str]) -> None:
    """Refuse a cid: that names no part; note parts and references that go elsewhere."""
    named = set()
    for reference in message.manifest:
        wanted = reference.content_id
        if wanted is None:
            # §3.2.2 leaves other schemes open; the application may resolve them (NHS uses mid:).
            notes.append(f"the reference {reference.href[:128]!r} lies outside this message")
            continue
        found = part_of(wanted, content_ids)
        if found is None:
            raise MimeProblem(
                f"the Manifest names {reference.href[:128]!r}, but no part has that Content-ID",
                location=reference.href,
                remedy="send the part, or leave the reference out",
            )
        named.add(found)
    notes.extend(
        f"the part {content_id[:64]!r} is not named in the Manifest"
        for content_id in content_ids
        if content_id not in named
    )


@dataclass(frozen=True, slots=True)
class HeaderRead:
    """The header is complete and sound; payloads are still to come."""

    received: Received


@dataclass(frozen=True, slots=True)
class PayloadStarted:
    """A payload part begins; its size is not known yet."""

    content_id: str
    media_type: str
    content_encoding: str | None


@dataclass(frozen=True, slots=True)
class PayloadData:
    """The next decoded bytes of the payload that began last."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PayloadEnded:
    """The payload is complete: size and digest are known. `data` is None, it passed by."""

    payload: Payload


Event: TypeAlias = HeaderRead | PayloadStarted | PayloadData | PayloadEnded


class _Ended(NamedTuple):
    """From where to where in the body the content of a part went."""

    begin: int | None
    end: int

    def place(self, encoding: str) -> PartPlace | None:
        return (
            None if self.begin is None else PartPlace(self.begin, self.end - self.begin, encoding)
        )


class _Part:
    """A payload on its way."""

    __slots__ = ("content_id", "digest", "headers", "others", "size")

    def __init__(self, content_id: str, headers: PartHeaders, others: tuple[str, ...]) -> None:
        self.content_id = content_id
        self.headers = headers
        self.size = 0
        self.digest = hashlib.sha256()
        # Signatures of the past name SHA-1; it is computed only for those.
        self.others = {name: hashlib.new(name, usedforsecurity=False) for name in others}


class Reader:
    """Feed it the body as it arrives; take the events; `finish` gives the whole."""

    def __init__(
        self,
        content_type: str,
        headers: tuple[tuple[str, str], ...] = (),
        limits: Limits = DEFAULT_LIMITS,
        *,
        validation: Validation = Validation.REPORT,
    ) -> None:
        self._parcel = Parcel(content_type, b"", headers)
        self._limits = limits
        self._validation = validation
        self._events: list[Event] = []
        self._root: list[bytes] = []
        self._root_size = 0
        self._in_root = False
        self._charset: str | None = None
        self._received: Received | None = None
        self._part: _Part | None = None
        self._payloads: list[Payload] = []
        self._places: list[PartPlace | None] = []
        self._content_ids: list[str] = []
        self._notes: list[str] = []
        self._extra_digests: list[tuple[str, str, bytes]] = []
        self._extra_names: tuple[str, ...] = ()
        # Parts that came before the root part, held until it is read.
        self._held: list[PartHeaders | bytes | _Ended] = []
        self._held_bytes = 0
        self._multipart: MultipartReader | None = None
        self._decoder: Decoder = Identity()
        self.work = Work()
        with _Refusing(self):
            self._open(content_type)

    def _open(self, content_type: str) -> None:
        media_type, params = parameters(content_type)
        # With or without brackets: NHS Spine leaves them out (docs/decisions.md#real-partners).
        self._start = bare_id(params.get("start"))
        if media_type.startswith("multipart/"):
            self._multipart = MultipartReader(
                params.get("boundary", ""), self, self._limits, work=self.work
            )
            return
        # §2.1.3.2; the XML declaration wins over it where they differ.
        self._charset = params.get("charset")
        encoding = (self._parcel.header("content-transfer-encoding") or "").strip().lower()
        self._decoder = decoder(encoding)
        self._in_root = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; the events they complete."""
        with _Refusing(self):
            # A body that is no multipart is a header alone, as acknowledgements are (§2.1.2).
            if self._multipart is not None:
                self._multipart.feed(chunk)
            else:
                if not self._root and chunk[:1] == b"<":
                    # A header over HTTP may still say base64; the bytes show it is not.
                    self._decoder = Identity()
                self.part_data(self._decoder.feed(chunk))
        events, self._events = self._events, []
        return events

    def finish(self) -> tuple[list[Event], Received]:
        """The body is over: the last events, and the whole message.

        Its payloads have no `data`; they passed by as events.
        """
        with _Refusing(self):
            if self._multipart is not None:
                self._multipart.finish()
            else:
                self.part_data(self._decoder.finish())
                self.work.foreign = self._decoder.foreign
                self.part_ended(None, 0)
            received = self._complete()
        events, self._events = self._events, []
        return events, received

    def limit_payloads(self, size: int) -> None:
        """From here on no payload may have more bytes: the agreement is known."""
        self._limits = replace(self._limits, payload_bytes=size)

    # What the MIME reader calls (PartSink).

    def part_started(self, headers: PartHeaders) -> bool:
        """A part begins: the root part, a container, or a payload."""
        if headers.media_type.startswith("multipart/") and not self._is_referenced(headers):
            # A container is not a payload; one that the Manifest names is (it may be signed).
            return True
        # `start` may name a later part (RFC 2387 §3.2); what comes before it waits, within a bound.
        if self._received is None and not self._is_root(headers):
            self._held.append(headers)
            return False
        if self._received is None:
            self._in_root = True
            self._charset = headers.params.get("charset")
            return False
        self._start_payload(headers)
        return False

    def part_data(self, data: bytes) -> None:
        """Content of the part that began last."""
        if not data:
            return
        if self._in_root:
            self._root_size += len(data)
            self.work.hold(self._root_size)
            if self._root_size > self._limits.header_bytes:
                raise beyond(
                    f"the header has more than {self._limits.header_bytes:,} bytes",
                    "header_bytes",
                    self._limits.header_bytes,
                )
            self._root.append(data)
        elif self._received is None:
            self._held_bytes += len(data)
            self.work.hold(self._held_bytes)
            if self._held_bytes > self._limits.before_root_bytes:
                raise beyond(
                    "payloads stand before the root part",
                    "before_root_bytes",
                    self._limits.before_root_bytes,
                    mime=True,
                )
            self._held.append(data)
        else:
            self._payload_data(data)

    def part_ended(self, begin: int | None, end: int) -> None:
        """The part that began last is complete."""
        if self._in_root:
            self._in_root = False
            self._read_header(b"".join(self._root))
            held, self._held = self._held, []
            for item in held:
                if isinstance(item, PartHeaders):
                    self._start_payload(item)
                elif isinstance(item, _Ended):
                    self._end_payload(item)
                else:
                    self._payload_data(item)
        elif self._received is None:
            self._held.append(_Ended(begin, end))
        else:
            self._end_payload(_Ended(begin, end))

    # Root part

    def _is_root(self, headers: PartHeaders) -> bool:
        # Without `start` the first part is the root (RFC 2387 §3.2).
        return not self._start or headers.content_id == self._start

    def _is_referenced(self, headers: PartHeaders) -> bool:
        if self._received is None or not headers.content_id:
            return False
        # A container that nobody names is only packaging.
        return any(
            reference.content_id == headers.content_id
            for reference in self._received.message.manifest
        )

    def _read_header(self, envelope: bytes) -> None:
        reading = header.read(envelope, self._charset, self._limits, self._validation)
        self.work.tags = envelope.count(b"<")
        self._notes.extend(reading.notes)
        self._received = Received(
            message=reading.message,
            parcel=self._parcel,
            envelope=envelope,
            dialect=reading.message.dialect,
            notes=tuple(self._notes),
            schema_problems=reading.schema_problems,
            signed=reading.signed,
            charset=self._charset,
            complete=False,
        )
        # Asked for now, because the parts pass by only once.
        if reading.signed:
            self._extra_names = digest_names(envelope)
        self._events.append(HeaderRead(self._received))

    # Payloads

    def _start_payload(self, headers: PartHeaders) -> None:
        content_id = headers.content_id
        # Nothing can refer to it (§2.1.4), but a gateway may have dropped the header; the
        # application still gets it.
        if not content_id:
            content_id = f"part-{len(self._content_ids) + 1}"
            self._notes.append(f"a part without Content-ID is called {content_id}")
        # Which of the two is meant by the manifest, and by the signature, nobody could say.
        if content_id in self._content_ids:
            raise MimeProblem(
                f"two parts have the Content-ID {content_id[:64]!r}",
                location=f"cid:{content_id}",
                remedy="give every part an id of its own",
            )
        self._content_ids.append(content_id)
        self._part = _Part(content_id, headers, self._extra_names)
        self._events.append(
            PayloadStarted(content_id, headers.content_type, headers.content_encoding)
        )

    def _payload_data(self, data: bytes) -> None:
        part = self._part
        if part is None:
            return
        # Counted decoded, as the agreement counts (BIG-1).
        part.size += len(data)
        bound = self._limits.payload_bytes
        if bound is not None and part.size > bound:
            raise beyond("a payload is too large", "payload_bytes", bound, mime=True)
        part.digest.update(data)
        for other in part.others.values():
            other.update(data)
        self._events.append(PayloadData(data))

    def _end_payload(self, ended: _Ended) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        try:
            payload = Payload(
                content_id=part.content_id,
                media_type=part.headers.content_type,
                size=part.size,
                digest=part.digest.hexdigest(),
                content_encoding=part.headers.content_encoding,
                mime_headers=part.headers.others,
            )
        except InvalidValue as problem:
            raise MimeProblem(problem.problem, location="MIME", remedy=problem.remedy) from None
        self._payloads.append(payload)
        self._places.append(ended.place(part.headers.transfer_encoding))
        self._extra_digests.extend(
            (part.content_id, name, other.digest()) for name, other in part.others.items()
        )
        self._events.append(PayloadEnded(payload))

    # The end

    def _complete(self) -> Received:
        received = self._received
        # Nothing of the message is known, so nobody can be answered: a MIME error (§2.1.6).
        if received is None:
            raise MimeProblem(
                f"no part is the root: none has the Content-ID {self._start[:64]!r}"
                if self._start
                else "the message has no parts",
                location="start",
                remedy="let `start` name the header part",
            )
        closed = self._multipart is None or not self._multipart.unclosed
        # Only noted: some senders forget it. Whether the end was cut off the transport knows, by
        # its length.
        if not closed:
            self._notes.append("the closing boundary is missing")
        if self.work.foreign:
            self._notes.append("characters that do not belong into base64 were skipped")
        resolve_references(received.message, self._content_ids, self._notes)
        return structs.replace(
            received,
            message=structs.replace(received.message, payloads=tuple(self._payloads)),
            notes=tuple(self._notes),
            complete=True,
            closed=closed,
            odd_base64=self.work.foreign,
            extra_digests=tuple(self._extra_digests),
            places=tuple(self._places),
        )

    def refuse(self, error: EbxmlError | SoapFault) -> ReadFault:
        """The fault of this message, with all that is known of it."""
        if self._received is None:
            return ReadFault((error,), envelope=b"", notes=tuple(self._notes))
        return ReadFault(
            (error,),
            PartialHeader.of(self._received.message),
            self._received.envelope,
            tuple(self._notes),
        )


class _Refusing:
    """Turns an ebXML error into a ReadFault that carries the facts read before it."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EbxmlError | SoapFault):
            raise self._reader.refuse(error) from None


__all__ = ["Event", "HeaderRead", "PayloadData", "PayloadEnded", "PayloadStarted", "Reader"]
