"""Delivery by webhook: each message is one signed POST to the application.

Guarantee: at least once, with an id that never changes. `webhook-id` and the CloudEvent's `id`
follow from the sender and the MessageId alone, so an application that remembers ids acts once.
A 2xx answer means that it has the message; anything else, or none in time, brings the same
event again later, and then `oncewireredelivered` may be true. In order per channel: the next
message is posted when this one was taken.

The body is a CloudEvent 1.0 in structured JSON. It is signed as Standard Webhooks describes:
`webhook-signature` is HMAC-SHA256 over id, timestamp and body, under the shared secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
from typing import TYPE_CHECKING, Any

from oncewire.entry.taken import TakenMessage, content, payload_facts
from oncewire.errors import InvalidValue, OncewireError, TransportProblem
from oncewire.handler.actions import Notice
from oncewire.handler.application import Taken
from oncewire.handler.world import RealWorld
from oncewire.message.instant import SECOND

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger("oncewire.delivery")

EVENT_TYPE = "org.oncewire.message.delivered"
FAILED_TYPE = "org.oncewire.message.failed"
SECRET_PREFIX = "whsec_"  # noqa: S105  (the prefix of Standard Webhooks, not a secret)
TIMEOUT = 30.0


def check_url(url: str) -> str:
    """The address, if it is one that can be called."""
    if not url.startswith(("http://", "https://")):
        raise InvalidValue(
            f"application.url {url[:200]!r} is no http address", remedy="write https://..."
        )
    return url


def secret_bytes(secret: str) -> bytes:
    """The key of a secret: base64 after `whsec_`, else the text itself."""
    if not secret:
        raise InvalidValue(
            "the webhook has no secret to sign with",
            remedy="set application.secret, for example from `openssl rand -base64 32`",
        )
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidValue(
            "application.secret begins with whsec_ and is not base64 after it",
            remedy="copy the secret again",
        ) from None


def signature(key: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """What `webhook-signature` says of a body."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def event_id(sender: str, message_id: str) -> str:
    """The id of a message's event, the same for every try."""
    return "msg_" + hashlib.sha256(f"{sender}\0{message_id}".encode()).hexdigest()[:32]


def event_of(message: TakenMessage) -> dict[str, Any]:
    """The CloudEvent of a message. Payloads are in it, as base64."""
    payloads = [
        {**payload_facts(one), "data_base64": base64.b64encode(content(one)).decode()}
        for one in message.payloads
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


class Webhook:
    """An application that is called over HTTP. See the module for the guarantee."""

    batch = 8

    def __init__(self, url: str, secret: str, timeout: float = TIMEOUT) -> None:
        self._url, self._key, self._timeout = check_url(url), secret_bytes(secret), timeout
        self._session: aiohttp.ClientSession | None = None
        self._world = RealWorld()
        # The event loop keeps no task alive by itself.
        self._told: set[asyncio.Task[None]] = set()

    async def deliver(self, taken: Taken) -> None:
        """Post it; returning means that the application answered 2xx."""
        event = event_of(TakenMessage.of(taken))
        await self._post(event)

    async def _post(self, event: dict[str, Any]) -> None:
        import aiohttp

        body = json.dumps(event, ensure_ascii=False).encode()
        timestamp = self._world.now() // SECOND
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": event["id"],
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(self._key, event["id"], timestamp, body),
        }
        try:
            answer = await self._open().post(
                self._url, data=body, headers=headers, allow_redirects=False
            )
            async with answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransportProblem(
                f"the webhook did not answer: {type(error).__name__} {error}".strip()
            ) from None
        if not 200 <= status < 300:
            raise TransportProblem(f"the webhook answered {status}")

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None or self._session.closed:
            # Proxies and credentials of the environment are not meant for payloads.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout), trust_env=False
            )
        return self._session

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    def notify(self, notice: Notice) -> None:
        """A failure is posted once, without a promise: it is in the store and in the log too."""
        event = {
            "specversion": "1.0",
            "id": event_id("failure", notice.message_id),
            "source": "oncewire",
            "type": FAILED_TYPE,
            "subject": notice.message_id,
            "datacontenttype": "application/json",
            "data": {
                "message_id": notice.message_id,
                "outcome": notice.state.value,
                "severity": notice.severity.value,
                "reason": notice.reason,
            },
        }
        task = asyncio.get_running_loop().create_task(self._tell(event))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _tell(self, event: dict[str, Any]) -> None:
        try:
            await self._post(event)
        except OncewireError as error:
            logger.warning(
                "a failure could not be posted",
                extra={"message_id": event["subject"], "problem": str(error)},
            )
