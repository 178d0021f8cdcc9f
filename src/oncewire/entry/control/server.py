"""The handler's end of the control socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from oncewire.entry.control import language as control
from oncewire.entry.control.language import ControlFrame
from oncewire.entry.control.verbs import Verbs, need_channel_or_message
from oncewire.entry.delivery.received_message import content, notice_facts
from oncewire.errors import InvalidValue, OncewireError

logger = logging.getLogger("oncewire.control")

WAIT_MAX = 3600.0
TAKE_MAX = 1000


class ControlServer:
    """Serves the verbs of a running handler to other processes of the same user."""

    def __init__(self, path: Path, verbs: Verbs) -> None:
        self._path, self._verbs = path, verbs
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        listener = control.listening_socket(self._path)
        self._server = await asyncio.start_unix_server(
            self._welcome, sock=listener, limit=control.LINE_MAX
        )

    async def stop(self) -> None:
        """Stop listening; whoever waits for an outcome is let go."""
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
                frame = await control.read_frame(reader)
            except InvalidValue as error:
                # What follows on this connection cannot be told from what went wrong.
                control.write_frame(writer, control.error_frame(error))
                await writer.drain()
                return
            if frame is None:
                return
            control.write_frame(writer, await self._answer(frame))
            await writer.drain()

    async def _answer(self, frame: ControlFrame) -> ControlFrame:
        verb = str(frame.values.get("verb"))
        given = frame.values.get("arguments", {})
        arguments = dict(given) if isinstance(given, dict) else {}
        try:
            return await self._perform(verb, arguments, frame.parts)
        except OncewireError as error:
            return control.error_frame(error)
        except Exception as error:
            logger.exception("a command failed", extra={"verb": verb})
            return control.error_frame(OncewireError(f"a fault in the handler itself: {error}"))

    async def _perform(
        self, verb: str, arguments: dict[str, Any], parts: tuple[bytes, ...]
    ) -> ControlFrame:
        known: dict[str, Callable[[dict[str, Any]], Awaitable[ControlFrame]]] = {
            "wait": self._wait,
            "take": self._take,
            "confirm": self._confirm,
            "notices": self._notices,
            "confirm_notice": self._confirm_notice,
            "resume": self._resume,
            "pause": self._pause,
            "abandon": self._abandon,
            "resend": self._resend,
            "restart": self._restart,
            "hold": self._hold,
            "accept_clock": self._accept_clock,
            "reload": self._reload,
            "status": self._status,
        }
        if verb == "send":
            accepted = await self._verbs.send(control.read_submission(arguments, parts))
            return _good(
                message_id=accepted.message_id,
                conversation_id=accepted.conversation_id,
                repeated=accepted.repeated,
            )
        if verb not in known:
            raise InvalidValue(
                f"the handler knows no verb {verb[:32]!r}",
                remedy="use the same version of Oncewire for the handler and for commands",
            )
        return await known[verb](arguments)

    async def _wait(self, arguments: dict[str, Any]) -> ControlFrame:
        timeout = min(float(arguments.get("timeout", 0)), WAIT_MAX)
        state = await self._verbs.wait(_text(arguments, "message_id"), timeout)
        return _good(state=None if state is None else state.value)

    async def _take(self, arguments: dict[str, Any]) -> ControlFrame:
        taken = await self._verbs.take(_limit(arguments))
        parts = tuple(content(payload) for message in taken for payload in message.payloads)
        frame = _good(messages=[message.facts() for message in taken])
        return ControlFrame(frame.values, parts)

    async def _confirm(self, arguments: dict[str, Any]) -> ControlFrame:
        sender, message_id = _text(arguments, "sender"), _text(arguments, "message_id")
        return _good(first=await self._verbs.confirm(sender, message_id))

    async def _notices(self, arguments: dict[str, Any]) -> ControlFrame:
        found = await self._verbs.notices(_limit(arguments))
        return _good(notices=[notice_facts(notice) for notice in found])

    async def _confirm_notice(self, arguments: dict[str, Any]) -> ControlFrame:
        return _good(first=await self._verbs.confirm_notice(_text(arguments, "notice_id")))

    async def _resume(self, arguments: dict[str, Any]) -> ControlFrame:
        message_id, channel = arguments.get("message_id"), arguments.get("channel")
        need_channel_or_message(message_id, channel)
        await self._verbs.resume(message_id=message_id, channel=channel)
        return _good()

    async def _pause(self, arguments: dict[str, Any]) -> ControlFrame:
        await self._verbs.pause(_text(arguments, "channel"), _text(arguments, "reason"))
        return _good()

    async def _abandon(self, arguments: dict[str, Any]) -> ControlFrame:
        await self._verbs.abandon(_text(arguments, "message_id"))
        return _good()

    async def _resend(self, arguments: dict[str, Any]) -> ControlFrame:
        await self._verbs.resend(_text(arguments, "message_id"))
        return _good()

    async def _restart(self, arguments: dict[str, Any]) -> ControlFrame:
        await self._verbs.restart(_text(arguments, "channel"))
        return _good()

    async def _hold(self, arguments: dict[str, Any]) -> ControlFrame:
        held = arguments.get("held")
        if not isinstance(held, bool):
            raise InvalidValue("held is missing", remedy="say whether to hold or to release")
        await self._verbs.hold(_text(arguments, "message_id"), held)
        return _good()

    async def _accept_clock(self, _arguments: dict[str, Any]) -> ControlFrame:
        await self._verbs.accept_clock()
        return _good()

    async def _reload(self, _arguments: dict[str, Any]) -> ControlFrame:
        return _good(agreements=await self._verbs.reload())

    async def _status(self, _arguments: dict[str, Any]) -> ControlFrame:
        return _good(**(await self._verbs.status()).as_dict())


def _good(**result: Any) -> ControlFrame:
    return ControlFrame({"ok": True, "result": result})


def _limit(arguments: dict[str, Any]) -> int:
    return max(1, min(int(arguments.get("limit", 1)), TAKE_MAX))


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} is missing", remedy=f"give {name}")
    return value
