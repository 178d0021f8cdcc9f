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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from oncewire.entry.control.client import (
    LocalHandler,
    OfflineStore,
    PartyFace,
    Reached,
    Remote,
    running_or,
)
from oncewire.entry.control.verb import Awaiting, Blocking, Method, Verb
from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.serving import make_engine, prepare, serving
from oncewire.errors import NotAllowed

# Reach: find who does a party's work now, so that there are never two writers of its store.
#
# The handler that runs is asked through its control socket. Where none runs, the caller becomes
# the writer for as long as it needs: at rest, or as a handler if something must be sent. Who comes
# while another command has the store waits a little for it.


def offline(settings: Settings) -> OfflineStore:
    """The store of a party whose handler does not run."""
    return OfflineStore(make_engine(settings), settings=settings)


@asynccontextmanager
async def reach(settings: Settings) -> AsyncIterator[Remote | OfflineStore]:
    """The running handler, or the store itself if there is none."""
    found = await running_or(settings, lambda: offline(settings))
    try:
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def reach_running(settings: Settings) -> AsyncIterator[Remote | LocalHandler]:
    """The running handler, or one that runs in this process for the time being."""
    found = await running_or(settings, lambda: prepare(settings))
    if not isinstance(found, Remote):
        async with serving(settings, found, passing=True) as running:
            yield running
        return
    try:
        yield found
    finally:
        await found.close()


R = TypeVar("R")

WAIT = 30.0
"""Seconds that one question waits for the next message."""


class OpenParty(PartyFace, Awaiting):
    """An open party, as `open_party` gives it. Each verb returns when what it says is durable, or
    raises why it is not; ids are given whole."""

    def __init__(self, reached: Reached) -> None:
        self._reached = reached

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Messages as they come, for ever: `async for message in party.messages()`. Each is to be
        confirmed before its lease ends, a minute; one that is not comes again."""
        while True:
            for message in await self.take(1, timeout=WAIT):
                yield message

    async def _perform(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        self._reached.check_open()
        if isinstance(method, Verb):
            return await self._reached.verbs.perform(method, method.bound(args, kwargs))
        return await method.body(self, *args, **kwargs)


class _Unopened:
    """A party that a program has named and not opened: whoever uses it as if it were open hears
    how it is opened, instead of what Python calls this object."""

    _opening = ""

    def _refusal(self) -> NotAllowed:
        return NotAllowed(
            "the party is not open",
            remedy=f"write `{self._opening}(...) as party:`, and call the party there",
        )

    if not TYPE_CHECKING:
        # A type checker hears it from there.
        def __getattr__(self, name: str) -> Any:
            raise self._refusal() if hasattr(OpenParty, name) else AttributeError(name)

        def __await__(self) -> Any:
            raise self._refusal()


class _Door(_Unopened, AbstractAsyncContextManager[OpenParty, None]):
    """What `open_party` gives to `async with`."""

    _opening = "async with open_party"

    def __init__(self, place: Path | str) -> None:
        self._way = _reach(place)

    async def __aenter__(self) -> OpenParty:
        return OpenParty(await self._way.__aenter__())

    async def __aexit__(self, *raised: Any) -> None:
        await self._way.__aexit__(*raised)

    if not TYPE_CHECKING:

        def __enter__(self) -> Any:
            raise self._refusal()

        def __exit__(self, *raised: Any) -> None:
            """Nobody comes in, so nobody leaves."""


def open_party(place: Path | str) -> AbstractAsyncContextManager[OpenParty]:
    """The party whose folder (or oncewire.toml) is named, for as long as the block lasts.

    If its handler runs (`oncewire serve`), that one is asked; otherwise one runs here meanwhile.
    """
    return _Door(place)


@asynccontextmanager
async def _reach(place: Path | str) -> AsyncIterator[Reached]:
    settings = load(Path(place)).settings
    async with reach_running(settings) as verbs:
        reached = Reached(settings, verbs)
        try:
            yield reached
        finally:
            reached.close()


class BlockingParty(PartyFace, Blocking):
    """An open party, as `open_party_blocking` gives it: the verbs of `OpenParty` without `await`,
    each returning when it is done. Threads may share it."""

    def __init__(self, reached: Reached, loop: asyncio.AbstractEventLoop) -> None:
        self._reached, self._loop = reached, loop
        self._party = OpenParty(reached)

    def messages(self) -> Iterator[ReceivedMessage]:
        """Messages as they come, for ever: `for message in party.messages()`. See
        `OpenParty.messages`."""
        while True:
            yield from self.take(1, timeout=WAIT)

    def _perform_blocking(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        self._reached.check_open()
        verb: Callable[..., Coroutine[Any, Any, R]] = getattr(self._party, method.name)
        work = verb(*args, **kwargs)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _BlockingDoor(_Unopened, AbstractContextManager[BlockingParty, None]):
    """What `open_party_blocking` gives to `with`."""

    _opening = "with open_party_blocking"

    def __init__(self, place: Path | str) -> None:
        self._way = _reach_blocking(place)

    def __enter__(self) -> BlockingParty:
        return self._way.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._way.__exit__(*raised)

    if not TYPE_CHECKING:

        async def __aenter__(self) -> Any:
            raise self._refusal()

        async def __aexit__(self, *raised: Any) -> None:
            """Nobody comes in, so nobody leaves."""


def open_party_blocking(place: Path | str) -> AbstractContextManager[BlockingParty]:
    """`open_party` without an event loop: it runs in a thread of its own."""
    return _BlockingDoor(place)


@contextmanager
def _reach_blocking(place: Path | str) -> Iterator[BlockingParty]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="oncewire", daemon=True)
    thread.start()
    door = _reach(place)
    try:
        entered = asyncio.run_coroutine_threadsafe(door.__aenter__(), loop)
        reached = entered.result()
        try:
            yield BlockingParty(reached, loop)
        finally:
            left = asyncio.run_coroutine_threadsafe(door.__aexit__(None, None, None), loop)
            left.result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
