"""A command's end of the control socket: the verbs of a handler that runs elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

from oncewire.entry.control import language as control
from oncewire.entry.control.language import ControlFrame
from oncewire.entry.control.verbs import Status
from oncewire.entry.delivery.received_message import ReceivedMessage, content, notice_from
from oncewire.errors import TransportProblem
from oncewire.handler.actions import Notice
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.protocol.states import OutgoingState

CONNECTIONS = 64
"""Requests under way at once; the handler's commit serves all of them together."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Remote:
    """The handler behind a control socket. See `verbs.Verbs` for what the verbs promise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[_Streams] = []
        self._turns = asyncio.Semaphore(CONNECTIONS)

    @classmethod
    async def connect(cls, path: Path) -> Remote | None:
        """The handler at that path, or None if none listens there."""
        remote = cls(path)
        try:
            remote._idle.append(await remote._open())
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise TransportProblem(
                f"the control socket {path} cannot be used: {error.strerror}",
                remedy="run the command as the user whose handler it is",
            ) from None
        return remote

    async def close(self) -> None:
        """Close every connection."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _open(self) -> _Streams:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with control.short_name(self._path) as name:
                await asyncio.get_running_loop().sock_connect(connection, name)
        except BaseException:
            connection.close()
            raise
        return await asyncio.open_unix_connection(sock=connection, limit=control.LINE_MAX)

    async def _ask(self, verb: str, **arguments: Any) -> ControlFrame:
        return await self._exchange(ControlFrame({"verb": verb, "arguments": arguments}))

    async def _exchange(self, request: ControlFrame) -> ControlFrame:
        """One question, one answer, on a connection that nobody else uses meanwhile."""
        async with self._turns:
            try:
                streams = self._idle.pop() if self._idle else await self._open()
                answer = await self._over(streams, request)
            except (OSError, asyncio.IncompleteReadError):
                answer = None
            if answer is None:
                raise TransportProblem(
                    "the handler stopped before it answered",
                    remedy="look with `oncewire outbox` whether it was done; a message that is "
                    "sent again under the same MessageId cannot arrive twice",
                )
            self._idle.append(streams)
        if answer.values.get("ok") is not True:
            raise control.read_error(answer.values)
        return answer

    async def _over(self, streams: _Streams, request: ControlFrame) -> ControlFrame | None:
        reader, writer = streams
        try:
            control.write_frame(writer, request)
            await writer.drain()
            return await control.read_frame(reader)
        except BaseException:
            # An answer that comes later must not be taken for that of the next question.
            writer.close()
            raise

    # --- verbs ---

    async def send(self, submission: Submission) -> Accepted:
        """See `Verbs`."""
        contents = [content(payload) for payload in submission.payloads]
        answer = await self._exchange(control.submission_frame(submission, contents))
        return Accepted(**_result(answer))

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """See `Verbs`."""
        answer = await self._ask("wait", message_id=message_id, timeout=timeout)
        state = _result(answer)["state"]
        return None if state is None else OutgoingState(state)

    async def take(self, limit: int) -> list[ReceivedMessage]:
        """See `Verbs`."""
        answer = await self._ask("take", limit=limit)
        taken, at = [], 0
        for facts in _result(answer)["messages"]:
            count = len(facts["payloads"])
            taken.append(ReceivedMessage.from_facts(facts, answer.parts[at : at + count]))
            at += count
        return taken

    async def confirm(self, sender: str, message_id: str) -> bool:
        """See `Verbs`."""
        answer = await self._ask("confirm", sender=sender, message_id=message_id)
        return bool(_result(answer)["first"])

    async def notices(self, limit: int) -> list[Notice]:
        """See `Verbs`."""
        answer = await self._ask("notices", limit=limit)
        return [notice_from(facts) for facts in _result(answer)["notices"]]

    async def confirm_notice(self, notice_id: str) -> bool:
        """See `Verbs`."""
        answer = await self._ask("confirm_notice", notice_id=notice_id)
        return bool(_result(answer)["first"])

    async def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """See `Verbs`."""
        await self._ask("resume", message_id=message_id, channel=channel)

    async def pause(self, channel: str, reason: str) -> None:
        """See `Verbs`."""
        await self._ask("pause", channel=channel, reason=reason)

    async def abandon(self, message_id: str) -> None:
        """See `Verbs`."""
        await self._ask("abandon", message_id=message_id)

    async def resend(self, message_id: str) -> None:
        """See `Verbs`."""
        await self._ask("resend", message_id=message_id)

    async def restart(self, channel: str) -> None:
        """See `Verbs`."""
        await self._ask("restart", channel=channel)

    async def hold(self, message_id: str, held: bool) -> None:
        """See `Verbs`."""
        await self._ask("hold", message_id=message_id, held=held)

    async def accept_clock(self) -> None:
        """See `Verbs`."""
        await self._ask("accept_clock")

    async def reload(self) -> int:
        """See `Verbs`."""
        return int(_result(await self._ask("reload"))["agreements"])

    async def status(self) -> Status:
        """See `Verbs`."""
        found = _result(await self._ask("status"))
        return Status(**{name: value for name, value in found.items() if name in _STATUS})


_STATUS = {field.name for field in fields(Status)}


def _result(answer: ControlFrame) -> dict[str, Any]:
    result = answer.values.get("result")
    return dict(result) if isinstance(result, dict) else {}
