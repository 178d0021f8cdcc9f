"""A party at its admin port, for Python programs on other machines: the verbs of `open_party`.

    async with connect("https://acme.example:8443", token) as party:
        sent = await party.send("globex", b"<order/>", media_type="application/xml")
        print(await party.wait(sent.message_id, timeout=30))

`send` gives every message an Idempotency-Key and repeats a call whose answer was lost: the document
is sent once.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp

from oncewire import errors
from oncewire.entry.admin.form import (
    IDEMPOTENCY,
    MESSAGES,
    REPLAYED,
    UPLOADS,
    VerbForm,
    read_result,
)
from oncewire.entry.control.client import PartyFace
from oncewire.entry.control.values import checked
from oncewire.entry.control.verb import Awaiting, Method, Verb
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.messages.documents import Document, payloads_of
from oncewire.entry.messages.submitting import AS_AGREED, SendOptions, lifetime_of
from oncewire.errors import InvalidValue, OncewireError, TransportProblem
from oncewire.handler.actions import Accepted, Submission
from oncewire.message.envelope import Payload
from oncewire.message.ids import check_text
from oncewire.message.instant import format_duration
from oncewire.message.payload import Content, as_file

R = TypeVar("R")

TRIES = 5
"""How often a submission is made whose answer is lost."""

PAUSE = 0.2
"""Seconds before the second try; each next pause is twice as long."""

PIECE = 256 * 1024
"""Bytes of a document that are fetched or read at once."""

_KINDS: Mapping[str, type[OncewireError]] = {
    "not-here": errors.NotHere,
    "unknown-message": errors.UnknownMessage,
    "not-allowed": errors.NotAllowed,
    "store-full": errors.StoreFull,
    "store-problem": errors.StoreProblem,
    "transport-problem": errors.TransportProblem,
    "sign-in": errors.NotAllowed,
    "role": errors.NotAllowed,
}


class ConnectedParty(PartyFace, Awaiting):
    """A party at its admin port, as `connect` gives it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def _perform(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        if isinstance(method, Verb):
            given = checked(method, method.bound(args, kwargs)).arguments
            result: R = await self._verb(method, given)
            return result
        own: dict[str, Callable[..., Awaitable[Any]]] = {
            "send": self._send,
            "submit": self._submit,
            "confirm": lambda message: self._verb(
                TABLE["confirm"], {"sender": message.sender, "message_id": message.message_id}
            ),
            "confirm_notice": lambda notice: self._verb(
                TABLE["confirm_notice"], {"notice_id": notice.notice_id}
            ),
        }
        done: R = await own[method.name](*args, **kwargs)
        return done

    async def _verb(self, verb: Verb[..., Any], given: Mapping[str, Any]) -> Any:
        """Ask for a verb of the table."""
        form, rest = VerbForm(verb), dict(given)
        if rest.pop("by", None) is not None:
            raise InvalidValue(
                "`by` is the name of the token here", remedy="leave it out; use another token"
            )
        path = form.filled(rest.pop("message_id")) if form.about_message else form.path
        said = {name: value for name, value in rest.items() if value is not None}
        if form.reads:
            query = {name: _text(value) for name, value in said.items()}
            answer = await self._ask("GET", path, params=query)
        else:
            answer = await self._ask("POST", path, json=said)
        written = answer["result"]
        # Documents that did not come along, each in a file that goes with it.
        fetched = {
            payload["href"]: await self._fetch(payload["href"])
            for message in (written if verb.returns == MESSAGES else ())
            for payload in message["payloads"]
            if "data" not in payload
        }
        return read_result(verb, written, fetched)

    async def _fetch(self, href: str) -> Content:
        """A document, fetched into a file without a name."""
        file = TemporaryFile()  # noqa: SIM115
        async with self._asked("GET", href) as response:
            async for piece in response.content.iter_chunked(PIECE):
                await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(file.flush)
        return _Fetched(file)

    async def _send(
        self,
        to: str,
        *documents: Document,
        media_type: str = "",
        options: SendOptions | None = None,
    ) -> Accepted:
        given = AS_AGREED if options is None else options
        query = {each.name: getattr(given, each.name) for each in fields(given)}
        lifetime = query.pop("time_to_live")
        if isinstance(lifetime, timedelta):
            lifetime = format_duration(lifetime_of(lifetime) or 0)
        said = {name: _text(value) for name, value in query.items() if value}
        said |= {} if lifetime is None else {"time_to_live": lifetime}
        return await self._upload({"to": to, **said}, payloads_of(documents, media_type))

    async def _submit(self, submission: Submission) -> Accepted:
        """See `PartyFace.submit`."""
        lifetime = submission.time_to_live
        query = {
            "cpa_id": submission.cpa_id,
            "service": submission.service.spelled,
            "action": submission.action,
            "conversation_id": submission.conversation_id or "",
            "message_id": submission.message_id or "",
            "ref_to_message_id": submission.ref_to_message_id or "",
            "time_to_live": "" if lifetime is None else format_duration(lifetime),
            "best_effort": "true" if submission.best_effort else "",
        }
        return await self._upload(query, submission.payloads)

    async def _upload(self, query: dict[str, str], payloads: tuple[Payload, ...]) -> Accepted:
        """Hand documents in, again where the answer is lost."""
        params = {name: check_text(value, name) for name, value in query.items() if value}
        for payload in payloads:
            if not payload.media_type.isprintable():
                raise InvalidValue(
                    f"the media type {payload.media_type[:64]!r} cannot be used",
                    remedy="give one such as application/xml, in one line",
                )
        headers = {} if "message_id" in params else {IDEMPOTENCY: uuid4().hex}
        pause = PAUSE
        for left in range(TRIES, 0, -1):
            try:
                return await self._uploaded(params, headers, payloads)
            except TransportProblem:
                if left == 1:
                    raise
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError

    async def _uploaded(
        self, params: dict[str, str], headers: dict[str, str], payloads: tuple[Payload, ...]
    ) -> Accepted:
        """Hand documents in, once."""
        body: Any = None
        kinds = [payload.media_type.partition(";")[0].strip().lower() for payload in payloads]
        # The admin port would not take a body of such a type for the document itself; in a part of
        # a multipart/mixed it does.
        apart = any(
            kind.startswith("multipart/") or kind == "application/x-www-form-urlencoded"
            for kind in kinds
        )
        if len(payloads) == 1 and not apart:
            (payload,) = payloads
            headers = {**headers, "Content-Type": payload.media_type}
            if payload.file_name:
                params = {**params, "file_name": payload.file_name}
            body = payload.open()
        elif payloads:
            body = aiohttp.MultipartWriter("mixed")
            for payload in payloads:
                said = {"Content-Type": payload.media_type, "Content-ID": payload.content_id}
                part = body.append(payload.open(), said)
                if payload.file_name:
                    part.set_content_disposition("attachment", filename=payload.file_name)
        async with self._asked("POST", UPLOADS, params=params, headers=headers, data=body) as found:
            facts = (await found.json())["result"]
            repeated = found.headers.get(REPLAYED) == "true"
        return Accepted(facts["message_id"], facts["conversation_id"], repeated)

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        async with self._asked(method, path, **more) as response:
            return await response.json()

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is no problem."""
        try:
            async with self._session.request(method, path, **more) as response:
                await _check(response)
                yield response
        except aiohttp.ClientConnectorCertificateError as error:
            raise TransportProblem(
                f"the admin port's certificate is not trusted here: {error.certificate_error}",
                remedy="name the certificate that vouches for it: connect(url, token, ca=FILE)",
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportProblem(
                f"the admin port does not answer: {error}",
                remedy="see that `oncewire serve` runs there; a message that is sent again under "
                "the same message_id cannot arrive twice",
            ) from error


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raise what a problem tells."""
    if response.status < 400:
        return
    try:
        said = await response.json(content_type=None)
        word, detail = str(said["type"]).rpartition(":")[2], str(said["detail"])
    except (ValueError, KeyError, TypeError):
        raise TransportProblem(
            f"the admin port answers {response.status}", remedy="see that it is one of Oncewire"
        ) from None
    # 408 and 429 say nothing of the call: it may be made again.
    passing = response.status in (408, 429)
    unnamed = TransportProblem if passing else InvalidValue if response.status < 500 else None
    kind = _KINDS.get(word, unnamed or OncewireError)
    raise kind(detail, remedy=str(said.get("next", "")))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Fetched:
    """See `Content`: a file without a name, which each reader reads from a position of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def open(self) -> BinaryIO:
        """See `Content`."""

        def pieces() -> Iterator[bytes]:
            position = 0
            while piece := os.pread(self._file.fileno(), PIECE, position):
                position += len(piece)
                yield piece

        return as_file(pieces())


@asynccontextmanager
async def connect(
    url: str, token: str, *, ca: Path | str | None = None
) -> AsyncIterator[ConnectedParty]:
    """The party whose admin port is at that address, for as long as the block lasts.

    `token` is what `oncewire token add` showed: its roles say which verbs may be called. `ca` is
    the certificate (PEM) that vouches for the port's own, where this machine does not know it.
    """
    if not token.isascii() or not token.isprintable():
        raise InvalidValue(
            "the token cannot be one", remedy="give what `oncewire token add` showed"
        )
    try:
        said = urlsplit(url)
        good = said.scheme in ("http", "https") and bool(said.hostname) and said.port != 0
    except ValueError:
        good = False
    if not good or said.path not in ("", "/") or said.query or said.fragment or said.username:
        raise InvalidValue(
            f"{url[:100]!r} is no address of an admin port",
            remedy="give scheme, host and port alone, such as https://acme.example:8610",
        )
    try:
        trusted = ssl.create_default_context(cafile=ca)
    except OSError as error:
        why = error.strerror or getattr(error, "reason", "") or "it holds no certificate"
        raise InvalidValue(
            f"ca: {os.fspath(ca or '')} cannot be used: {why}",
            remedy="name a file of certificates (PEM)",
        ) from None
    headers = {"Authorization": f"Bearer {token}"}
    patience = aiohttp.ClientTimeout(total=None, connect=30)
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with aiohttp.ClientSession(
        url, headers=headers, timeout=patience, connector=connector
    ) as session:
        yield ConnectedParty(session)
