"""The handler's end of the control socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from oncewire.entry.control import language as control
from oncewire.entry.control import values
from oncewire.entry.control.language import ControlFrame
from oncewire.entry.control.verbs import TABLE, Verbs
from oncewire.errors import InvalidValue, OncewireError
from oncewire.store.spool_contract import Spool

logger = logging.getLogger("oncewire.control")

T = TypeVar("T")

LOOK_EVERY = 0.5
"""Seconds after which it is looked whether the caller still waits for an answer."""


class ControlServer:
    """Serves the verbs of a running handler to other processes of the same user."""

    def __init__(self, path: Path, verbs: Verbs, spool: Spool | None = None) -> None:
        """`spool`: where large documents go as they come."""
        self._path, self._verbs, self._spool = path, verbs, spool
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        listener = control.listening_socket(self._path)
        self._server = await asyncio.start_unix_server(
            self._welcome, sock=listener, limit=control.LINE_MAX
        )

    async def stop(self) -> None:
        """Stop listening; callers that wait for an outcome are let go."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        self._server.close()
        guests = list(self._guests)
        for guest in guests:
            guest.cancel()
        await asyncio.gather(*guests, return_exceptions=True)
        self._server = None

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._guests.add(task)
            task.add_done_callback(self._guests.discard)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            logger.debug("a command left early")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                frame = await control.read_frame(reader, self._spool)
            except InvalidValue as error:
                # What follows on this connection cannot be told from what went wrong.
                await control.write_frame(writer, control.error_frame(error))
                return
            if frame is None:
                return
            verb = TABLE.get(str(frame.values.get("verb")))
            answering = self.answer(frame)
            # Whether it may take as long as its caller says; any other ends by itself soon.
            waits = verb is not None and any(
                argument.name == "timeout" for argument in verb.arguments
            )
            try:
                answer = await (_while_there(writer, answering) if waits else answering)
            finally:
                control.give_back(frame.parts)
            try:
                await control.write_frame(writer, answer)
            except InvalidValue as error:
                await control.write_frame(writer, control.error_frame(error))

    async def answer(self, frame: ControlFrame) -> ControlFrame:
        """Do what a request asks for; what goes wrong is an answer too."""
        name = str(frame.values.get("verb"))
        try:
            verb = TABLE.get(name)
            if verb is None:
                raise control.unreadable(f"the handler knows no verb {name[:32]!r}")
            result = await self._verbs.perform(verb, values.read_request(verb, frame))
            return values.answer_frame(verb, result)
        except OncewireError as error:
            return control.error_frame(error)
        except Exception as error:
            logger.exception("a command failed", extra={"verb": name})
            return control.error_frame(OncewireError(f"a fault in the handler itself: {error}"))


async def _while_there(writer: asyncio.StreamWriter, work: Coroutine[Any, Any, T]) -> T:
    """What comes of it, unless the caller hangs up first."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
            if _hung_up(writer):
                raise ConnectionResetError
        return task.result()
    finally:
        task.cancel()


def _hung_up(writer: asyncio.StreamWriter) -> bool:
    """Whether the other side is gone altogether. That it will ask nothing more, as a shell's pipe
    says before it reads the answer, is another matter."""
    if writer.is_closing():
        return True
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
