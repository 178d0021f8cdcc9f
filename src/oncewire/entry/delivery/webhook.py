"""Delivery by webhook: each message is one signed POST to the application.

Guarantee: at least once, with an id that never changes. `webhook-id` and the CloudEvent's `id`
follow from the sender and the MessageId alone, so an application that remembers ids acts once.
A 2xx answer means that it has the message; anything else, or none in time, brings the same
event again later, and then `oncewireredelivered` may be true. In order per channel: the next
message is posted when this one was taken.

The body is a CloudEvent 1.0 in structured JSON. It is signed as Standard Webhooks describes:
`webhook-signature` is HMAC-SHA256 over id, timestamp and body, under the shared secret.

A message of ours that failed is an event of another type, with the same guarantee.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from oncewire.entry.delivery.received_message import (
    ReceivedMessage,
    message_of,
    notice_facts,
    payload_facts,
)
from oncewire.errors import InvalidValue, TransportProblem
from oncewire.handler.actions import Notice
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import Payload
from oncewire.message.instant import SECOND
from oncewire.message.payload import DistantPayload
from oncewire.transport.http.client import unconnected

if TYPE_CHECKING:
    import aiohttp


# Event body: the JSON of an event, of which large documents are read as it is posted.


PIECE = 3 * 256 * 1024
"""Bytes of a document that become base64 at once; a multiple of three, so that the pieces join."""


class EventBody:
    """The bytes of an event, in pieces. They can be read as often as asked for, and are the
    same each time: they are signed before they are sent."""

    def __init__(self, event: Mapping[str, Any], gaps: Mapping[str, Payload]) -> None:
        """`gaps`: by the texts that stand in the event where the base64 of these belongs."""
        text = json.dumps(event, ensure_ascii=False)
        self._parts: list[bytes | Payload] = []
        for gap, payload in gaps.items():
            before, _, text = text.partition(gap)
            self._parts += [before.encode(), payload]
        self._parts.append(text.encode())
        self.size = sum(
            len(part) if isinstance(part, bytes) else 4 * ((part.size + 2) // 3)
            for part in self._parts
        )

    def pieces(self) -> Iterator[bytes]:
        """All of it; blocks while documents are read."""
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            with part.open() as file:
                while piece := file.read(PIECE):
                    yield base64.b64encode(piece)

    async def sent(self) -> AsyncIterator[bytes]:
        """The same, read beside the event loop."""
        pieces = self.pieces()
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece


def as_base64(payload: Payload, gaps: dict[str, Payload]) -> str:
    """What stands in an event for the bytes of a document: themselves, or a gap for them."""
    if not isinstance(payload, DistantPayload):
        return base64.b64encode(payload.data or b"").decode()
    gap = secrets.token_hex(32)
    gaps[gap] = payload
    return gap


EVENT_TYPE = "org.oncewire.message.delivered"
FAILED_TYPE = "org.oncewire.message.failed"
SECRET_PREFIX = "whsec_"  # noqa: S105  (the prefix of Standard Webhooks, not a secret)
TIMEOUT = 30.0
NO_GAPS: Mapping[str, Payload] = {}
SLOWEST = 1024 * 1024
"""Bytes in a second at which an application has to take a large event, beyond that time."""


def check_url(url: str, section: str = "application") -> str:
    """The address, if it is one that can be called."""
    if not url.startswith(("http://", "https://")):
        raise InvalidValue(
            f"{section}.url {url[:200]!r} is no http address", remedy="write https://..."
        )
    return url


def secret_bytes(secret: str, section: str = "application") -> bytes:
    """The key of a secret: base64 after `whsec_`, else the text itself."""
    if not secret:
        raise InvalidValue(
            "the webhook has no secret to sign with",
            remedy=f"set {section}.secret, for example from `openssl rand -base64 32`",
        )
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidValue(
            f"{section}.secret begins with whsec_ and is not base64 after it",
            remedy="copy the secret again",
        ) from None


def signature(key: bytes, webhook_id: str, timestamp: int, body: Iterable[bytes]) -> str:
    """What `webhook-signature` says of a body, which is read once for it."""
    signed = hmac.new(key, f"{webhook_id}.{timestamp}.".encode(), "sha256")
    for piece in body:
        signed.update(piece)
    return "v1," + base64.b64encode(signed.digest()).decode()


def event_id(sender: str, message_id: str) -> str:
    """The id of a message's event, the same for every try."""
    return "msg_" + hashlib.sha256(f"{sender}\0{message_id}".encode()).hexdigest()[:32]


def event_of(message: ReceivedMessage, gaps: dict[str, Payload] | None = None) -> dict[str, Any]:
    """The CloudEvent of a message. Payloads are in it, as base64; `gaps` gets those that are read
    when it is posted, by what stands in their place."""
    left = {} if gaps is None else gaps
    payloads = [
        {**payload_facts(payload), "data_base64": as_base64(payload, left)}
        for payload in message.payloads
    ]
    return {
        "specversion": "1.0",
        "id": event_id(message.sender, message.message_id),
        "source": message.from_party,
        "type": EVENT_TYPE,
        "subject": message.message_id,
        "time": message.timestamp,
        "datacontenttype": "application/json",
        "oncewireredelivered": message.redelivered,
        "data": {**message.facts(), "payloads": payloads},
    }


def failure_of(notice: Notice) -> dict[str, Any]:
    """The CloudEvent of a failure; its id is the same for every try."""
    return {
        "specversion": "1.0",
        "id": event_id("failure", notice.notice_id),
        "source": "oncewire",
        "type": FAILED_TYPE,
        "subject": notice.message_id,
        "datacontenttype": "application/json",
        "data": notice_facts(notice),
    }


class SignedPosts:
    """Posts signed events to one address; whatever else its answer holds, its status counts.
    `section`: which settings name it."""

    def __init__(
        self, url: str, secret: str, timeout: float = TIMEOUT, section: str = "application"
    ) -> None:
        self._url, self._key = check_url(url, section), secret_bytes(secret, section)
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._world = RealWorld()

    async def post(self, event: dict[str, Any], gaps: Mapping[str, Payload] = NO_GAPS) -> None:
        """Post it; returning means that a 2xx came. TransportProblem says what came instead."""
        import aiohttp

        body = EventBody(event, gaps)
        timestamp = self._world.now() // SECOND
        pieces = body.pieces()
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "Content-Length": str(body.size),
            "webhook-id": event["id"],
            "webhook-timestamp": str(timestamp),
            "webhook-signature": await asyncio.to_thread(
                signature, self._key, event["id"], timestamp, pieces
            ),
        }
        try:
            answer = await self._open().post(
                self._url,
                data=body.sent() if gaps else b"".join(body.pieces()),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout + body.size / SLOWEST),
            )
            async with answer:
                status = answer.status
        except aiohttp.ClientConnectorError as error:
            raise TransportProblem(
                f"the webhook {unconnected(error.host, error.port, error.os_error)}"
            ) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransportProblem(
                f"the webhook did not answer: {type(error).__name__} {error}".strip()
            ) from None
        if not 200 <= status < 300:
            raise TransportProblem(f"the webhook answered {status}")

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None or self._session.closed:
            # Proxies and credentials of the environment are not meant for payloads, and nothing
            # of an answer counts but its status: no cookie is kept, no body unpacked.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()


class Webhook:
    """An application that is called over HTTP. See the module for the guarantee."""

    batch = 8
    hears = True

    def __init__(self, url: str, secret: str, timeout: float = TIMEOUT) -> None:
        self._posts = SignedPosts(url, secret, timeout)
        self.close = self._posts.close

    async def deliver(self, taken: GivenMessage) -> None:
        """Post it; returning means that the application answered 2xx."""
        gaps: dict[str, Payload] = {}
        event = event_of(message_of(taken), gaps)
        await self._posts.post(event, gaps)

    async def notify(self, notice: Notice) -> None:
        """Post a failure; returning means that the application answered 2xx."""
        await self._posts.post(failure_of(notice))
