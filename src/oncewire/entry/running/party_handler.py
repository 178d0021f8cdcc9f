"""The Python API: a party by the name of its folder, for programs that send and receive.

    async with open_party("acme") as party:
        sent = await party.send("globex", b"<order/>", media_type="application/xml")
        print(await party.wait(sent.message_id, timeout=30))
        for message in await party.take():
            ...                                # your work, with message.payloads[0].data
            await party.confirm(message)

If the party's handler runs (`oncewire serve`), it is asked; otherwise one runs in this process
for as long as the party is open. Programs without an event loop use `open_party_blocking`, which
has the same verbs without `await`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncewire.entry.control.verbs import Status, Verbs
from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import AgreementFolder
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.reach import reach_running
from oncewire.handler.actions import Notice
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.message.payload import Payload
from oncewire.protocol.states import OutgoingState

T = TypeVar("T")
Document = bytes | Path | Payload


def payloads_of(documents: Sequence[Document], media_type: str) -> list[Payload]:
    """Bytes, files and ready payloads as payloads."""
    from oncewire.entry.messages.composing import payload_of

    found = []
    for number, document in enumerate(documents, 1):
        if isinstance(document, Payload):
            found.append(document)
        elif isinstance(document, Path):
            found.append(
                payload_of(f"{document};{media_type}" if media_type else str(document), number)
            )
        else:
            kind = media_type or "application/octet-stream"
            found.append(Payload.of(f"payload-{number}@oncewire", kind, document))
    return found


class OpenParty:
    """An open party. What `verbs.Verbs` says of each verb holds here."""

    def __init__(self, settings: Settings, verbs: Verbs) -> None:
        self.settings, self._verbs = settings, verbs
        self._agreements = AgreementFolder(settings)

    async def send(
        self,
        to: str,
        *documents: Document,
        media_type: str = "",
        options: SendOptions | None = None,
    ) -> Accepted:
        """Send documents to a partner as one message; when this returns, it is stored.

        A program that may repeat a call after a crash gives `options` a message_id of its own:
        the same id with the same content is accepted again and sent once.
        """
        agreement = find_agreement(self._agreements.readable(), to)
        payloads = payloads_of(documents, media_type)
        return await self._verbs.send(submission_of(agreement, payloads, options or SendOptions()))

    async def submit(self, submission: Submission) -> Accepted:
        """The same for a submission that is at hand."""
        return await self._verbs.send(submission)

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """The outcome of a message, or None when it has none within so many seconds."""
        return await self._verbs.wait(message_id, timeout)

    async def take(self, limit: int = 16) -> list[ReceivedMessage]:
        """Messages that wait for us; each is to be confirmed within a minute."""
        return await self._verbs.take(limit)

    async def confirm(self, message: ReceivedMessage) -> bool:
        """We have it; False when that was known already."""
        return await self._verbs.confirm(message.sender, message.message_id)

    async def notices(self, limit: int = 16) -> list[Notice]:
        """Messages of ours that failed; each is told again until it is confirmed."""
        return await self._verbs.notices(limit)

    async def confirm_notice(self, notice: Notice) -> bool:
        """We know of it; False when it was known already, or the message has gone on."""
        return await self._verbs.confirm_notice(notice.notice_id)

    async def resend(self, message_id: str) -> None:
        """Send the same bytes under the same MessageId again, which cannot duplicate."""
        await self._verbs.resend(message_id)

    async def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """The trouble of a message or a channel is over: go on."""
        await self._verbs.resume(message_id=message_id, channel=channel)

    async def pause(self, channel: str, reason: str) -> None:
        """Stop sending on a channel until it is resumed."""
        await self._verbs.pause(channel, reason)

    async def abandon(self, message_id: str) -> None:
        """Give a message up."""
        await self._verbs.abandon(message_id)

    async def restart(self, channel: str) -> None:
        """Begin the numbering of a channel anew."""
        await self._verbs.restart(channel)

    async def hold(self, message_id: str, held: bool = True) -> None:
        """Keep a message beyond its time for legal or business reasons, or (False) no longer."""
        await self._verbs.hold(message_id, held)

    async def accept_clock(self) -> None:
        """The machine's clock was set and is right: let things expire again."""
        await self._verbs.accept_clock()

    async def status(self) -> Status:
        """How the party is doing."""
        return await self._verbs.status()


@asynccontextmanager
async def open_party(place: Path | str) -> AsyncIterator[OpenParty]:
    """The party whose folder (or oncewire.toml) is named."""
    settings = load(Path(place)).settings
    async with reach_running(settings) as verbs:
        yield OpenParty(settings, verbs)


class BlockingParty:
    """The same verbs for programs without an event loop; each call waits for its answer."""

    def __init__(self, party: OpenParty, loop: asyncio.AbstractEventLoop) -> None:
        self._party, self._loop = party, loop

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def send(
        self,
        to: str,
        *documents: Document,
        media_type: str = "",
        options: SendOptions | None = None,
    ) -> Accepted:
        """See `OpenParty.send`."""
        return self._do(self._party.send(to, *documents, media_type=media_type, options=options))

    def submit(self, submission: Submission) -> Accepted:
        """See `OpenParty.submit`."""
        return self._do(self._party.submit(submission))

    def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """See `OpenParty.wait`."""
        return self._do(self._party.wait(message_id, timeout))

    def take(self, limit: int = 16) -> list[ReceivedMessage]:
        """See `OpenParty.take`."""
        return self._do(self._party.take(limit))

    def confirm(self, message: ReceivedMessage) -> bool:
        """See `OpenParty.confirm`."""
        return self._do(self._party.confirm(message))

    def notices(self, limit: int = 16) -> list[Notice]:
        """See `OpenParty.notices`."""
        return self._do(self._party.notices(limit))

    def confirm_notice(self, notice: Notice) -> bool:
        """See `OpenParty.confirm_notice`."""
        return self._do(self._party.confirm_notice(notice))

    def resend(self, message_id: str) -> None:
        """See `OpenParty.resend`."""
        self._do(self._party.resend(message_id))

    def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """See `OpenParty.resume`."""
        self._do(self._party.resume(message_id=message_id, channel=channel))

    def pause(self, channel: str, reason: str) -> None:
        """See `OpenParty.pause`."""
        self._do(self._party.pause(channel, reason))

    def abandon(self, message_id: str) -> None:
        """See `OpenParty.abandon`."""
        self._do(self._party.abandon(message_id))

    def restart(self, channel: str) -> None:
        """See `OpenParty.restart`."""
        self._do(self._party.restart(channel))

    def hold(self, message_id: str, held: bool = True) -> None:
        """See `OpenParty.hold`."""
        self._do(self._party.hold(message_id, held))

    def accept_clock(self) -> None:
        """See `OpenParty.accept_clock`."""
        self._do(self._party.accept_clock())

    def status(self) -> Status:
        """See `OpenParty.status`."""
        return self._do(self._party.status())


@contextmanager
def open_party_blocking(place: Path | str) -> Iterator[BlockingParty]:
    """`open_party` without an event loop: it runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="oncewire", daemon=True)
    thread.start()
    door = open_party(place)
    try:
        entered = asyncio.run_coroutine_threadsafe(door.__aenter__(), loop)
        party = entered.result()
        try:
            yield BlockingParty(party, loop)
        finally:
            left = asyncio.run_coroutine_threadsafe(door.__aexit__(None, None, None), loop)
            left.result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
