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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from inspect import BoundArguments
from pathlib import Path
from typing import TypeVar

from oncewire.entry.control.verb import Awaiting, Blocking, Method, Verb
from oncewire.entry.control.verbs import PartyVerbs, Verbs
from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import AgreementFolder
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.reach import reach_running
from oncewire.errors import NotAllowed
from oncewire.handler.actions import Notice
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.message.payload import Payload

R = TypeVar("R")
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


class _Party(PartyVerbs):
    """What a program may ask, with and without an event loop: the verbs of the table, and here
    those that a program has in handier words than the control socket."""

    _verbs: Verbs
    _agreements: AgreementFolder

    @Method
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

    @Method
    async def submit(self, submission: Submission) -> Accepted:
        """The same for a submission that is at hand."""
        return await self._verbs.send(submission)

    @Method
    async def confirm(self, message: ReceivedMessage) -> bool:
        """We have it; False when that was known already."""
        return await self._verbs.confirm(message.sender, message.message_id)

    @Method
    async def confirm_notice(self, notice: Notice) -> bool:
        """We know of it; False when it was known already, or the message has gone on."""
        return await self._verbs.confirm_notice(notice.notice_id)


class OpenParty(_Party, Awaiting):
    """An open party. Each verb returns when what it says is durable, or raises why it is not."""

    def __init__(self, settings: Settings, verbs: Verbs) -> None:
        self.settings, self._verbs = settings, verbs
        self._agreements = AgreementFolder(settings)
        self._closed = False

    def close(self) -> None:
        """Take no more verbs: nobody is there any more who could do them."""
        self._closed = True

    def check_open(self) -> None:
        """Refuse a call that would never be answered."""
        if self._closed:
            raise NotAllowed(
                f"the party {self.settings.party.name} is closed",
                remedy="call it inside the `with` block that opened it",
            )

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do a verb; `method(...)` is how it is called."""
        self.check_open()
        if isinstance(method, Verb):
            return await self._verbs.perform(method, given)
        return await method.body(self, *given.args, **given.kwargs)


@asynccontextmanager
async def open_party(place: Path | str) -> AsyncIterator[OpenParty]:
    """The party whose folder (or oncewire.toml) is named."""
    settings = load(Path(place)).settings
    async with reach_running(settings) as verbs:
        party = OpenParty(settings, verbs)
        try:
            yield party
        finally:
            party.close()


class BlockingParty(_Party, Blocking):
    """The same verbs for programs without an event loop; each call waits for its answer."""

    def __init__(self, party: OpenParty, loop: asyncio.AbstractEventLoop) -> None:
        self._party, self._loop = party, loop

    def perform_blocking(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do a verb; `method(...)` is how it is called."""
        self._party.check_open()
        work = self._party.perform(method, given)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


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
