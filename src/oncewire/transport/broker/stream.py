"""Stream: where a broker keeps parcels until their receiver has them, and what it must promise.

A message leaves such a stream in one way only: its receiver acknowledged it. Nothing discards it,
nothing lets it expire, nobody may delete it. So that it is gone is the proof that it was taken.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

from oncewire.errors import TransportProblem

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

CONSUMER = "oncewire"
"""The one consumer of a stream; several handlers may share it."""

REMEMBERED = 48 * 3600.0
"""Seconds for which the broker knows a parcel again that is published twice."""

ACK_WAIT = 15.0
"""Seconds after which the broker hands a parcel in again of whose receiver it hears nothing. Its
delivery was lost with a connection, or that handler died: one that works on it says so meanwhile.
A sender's attempt waits longer than this, or it would call a parcel unknown that is on its way."""

MONITOR_MAX = 1024 * 1024
"""Bytes that the monitoring of a broker may say."""

_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def subject_of(address: str) -> str:
    """The subject that an address names; TransportProblem where it is none."""
    scheme, _, subject = address.partition(":")
    if scheme.lower() != "nats" or len(subject) > 200 or not _SUBJECT.fullmatch(subject):
        raise TransportProblem(
            f"{address[:128]!r} is no address at a broker",
            remedy="write nats:subject, with letters, digits, -, _ and dots between words",
        )
    return subject


def stream_name(subject: str) -> str:
    """The stream of a subject."""
    return "ONCEWIRE-" + subject.replace(".", "-")


async def make_stream(js: JetStreamContext, subject: str, max_deliver: int) -> None:
    """The stream and the consumer of our own subject, as they must be."""
    from nats.js import api, errors

    name = stream_name(subject)
    # One that is there already may be made otherwise; whether it will do is looked at below.
    with contextlib.suppress(errors.BadRequestError):
        await js.add_stream(
            name=name,
            subjects=[subject],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.NEW,
            duplicate_window=REMEMBERED,
            deny_delete=True,
            deny_purge=True,
        )
    check_stream((await js.stream_info(name)).config, subject)
    await js.add_consumer(
        name,
        durable_name=CONSUMER,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT,
        max_deliver=max_deliver,
        max_ack_pending=256,
        # Every acknowledgement is told of, so that senders need not ask.
        sample_freq="100",
    )


def check_stream(config: StreamConfig, subject: str) -> None:
    """TransportProblem where a parcel for that subject may leave the stream before its receiver
    has it, or is not known again when it is published twice."""
    from nats.js import api

    wrong = [
        words
        for words, is_so in (
            ("it keeps messages in memory", config.storage != api.StorageType.FILE),
            (
                "messages do not leave it when they are acknowledged",
                config.retention != api.RetentionPolicy.WORK_QUEUE,
            ),
            ("it discards old messages for new ones", config.discard != api.DiscardPolicy.NEW),
            (
                "it keeps only so many messages of a subject",
                (config.max_msgs_per_subject or 0) > 0,
            ),
            ("messages expire", bool(config.max_age)),
            ("messages may say when they expire", bool(config.allow_msg_ttl)),
            ("a message may replace those before it", bool(config.allow_rollup_hdrs)),
            (f"it does not take {subject}", config.subjects != [subject]),
            (
                f"it forgets in less than {REMEMBERED / 3600:.0f} hours what it has had",
                (config.duplicate_window or 0) < REMEMBERED,
            ),
            ("it may be purged", not config.deny_purge),
            ("messages may be deleted", not config.deny_delete),
            ("it acknowledges nothing", bool(config.no_ack)),
        )
        if is_so
    ]
    if wrong:
        raise TransportProblem(
            f"the stream {config.name} loses messages: {', '.join(wrong)}",
            remedy="let the receiver's handler make it, or change it",
        )


async def check_server(monitor: str) -> None:
    """TransportProblem where the broker says yes before its disk has it."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{monitor.rstrip('/')}/jsz?config=true") as response,
        ):
            said = bytearray()
            async for piece in response.content.iter_chunked(65_536):
                said += piece
                if len(said) > MONITOR_MAX:
                    raise ValueError("it says more than anybody asked for")
            told: dict[str, Any] = dict(json.loads(said))
    except (aiohttp.ClientError, OSError, ValueError, TypeError) as error:
        raise TransportProblem(
            f"the broker does not say how it stores: {error}",
            remedy="set broker.monitor to the address of its monitoring (http_port)",
        ) from error
    if not told.get("config", {}).get("sync_always"):
        raise TransportProblem(
            "the broker acknowledges before its disk has it",
            remedy="set sync_interval: always in the jetstream block of its configuration",
        )
