"""A peer that follows a script: another community's handler, written from its samples and not from
our code. It reads and writes text, keeps its own memory of what it got, and resends what nobody
acknowledged. What it minds about our messages it says in `complaints`.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

RESEND = 0.4
PATIENCE = 60.0
_OWN = re.compile(rb"<(?:[\w-]+:)?MessageId>\s*([^<\s]+)\s*<")
_REFERRED = re.compile(rb"<(?:[\w-]+:)?RefToMessageId>\s*([^<\s]+)\s*<")
_DOCUMENT = re.compile(rb"order \d+")


@dataclass(frozen=True, slots=True)
class Said:
    """A body and what stands around it."""

    content_type: str
    body: bytes
    soap_action: str = '"ebXML"'


@dataclass
class Peer(ABC):
    """beta, as the software of some community; alpha is ours."""

    # Where it listens, and where it finds us: behind a bad network either way.
    port: int
    partner: str
    # Orders that its application was given, by MessageId.
    taken: Counter[str] = field(default_factory=Counter)
    documents: dict[str, bytes] = field(default_factory=dict)
    # What of its own was acknowledged.
    acknowledged: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    answers: dict[str, Said] = field(default_factory=dict)

    # --- what communities differ in ---

    PROFILE = ""
    AGREEMENT = ""
    STATUS = 204
    SYNCHRONOUS = False
    """Whether acknowledgements travel in the HTTP response."""
    SAME_ANSWER = True
    """Whether a copy is answered with the bytes of the first answer."""
    AT_ONCE = 1
    """How many messages it has under way."""

    @abstractmethod
    def message(self, number: int) -> Said:
        """An order of its own."""

    @abstractmethod
    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        """Its answer to a message."""

    def minds(self, body: bytes, headers: dict[str, str]) -> str:
        """What it finds wrong with what we sent; empty: nothing."""
        return ""

    def accepts(self, message_id: str, body: bytes) -> bool:
        """Whether it takes a message now; one that it does not take it answers with nothing."""
        return True

    # --- its life ---

    async def __aenter__(self) -> Peer:
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application.router.add_post("/msh", self._heard)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3))
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        await self._runner.cleanup()

    async def send_all(self, count: int) -> None:
        """Send orders until each is acknowledged."""
        turns = asyncio.Semaphore(self.AT_ONCE)

        async def one(number: int) -> None:
            async with turns:
                await self._send(number)

        await one(1)
        await asyncio.gather(*(one(number) for number in range(2, count + 1)))

    async def _send(self, number: int) -> None:
        said = self.message(number)
        message_id = f"order-{number}@beta"
        ends = asyncio.get_running_loop().time() + PATIENCE
        while message_id not in self.acknowledged:
            assert asyncio.get_running_loop().time() < ends, f"{message_id} is never acknowledged"
            await self._post(said)
            for _ in range(10):
                if message_id not in self.acknowledged:
                    await asyncio.sleep(RESEND / 10)

    async def _post(self, said: Said) -> None:
        headers = {"Content-Type": said.content_type, "SOAPAction": said.soap_action}
        try:
            async with self._session.post(self.partner, data=said.body, headers=headers) as reply:
                body = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return
        if body:
            self._note(body)

    def _note(self, body: bytes) -> None:
        """Something that answers: an acknowledgement, or an error that it minds."""
        if b"ErrorList" in body or b":Fault" in body:
            self.complaints.append(f"we were refused: {body[:2000]!r}")
        elif b"cknowledg" in body:
            self.acknowledged |= {found.decode() for found in _REFERRED.findall(body)}

    async def _heard(self, request: web.Request) -> web.Response:
        body = await request.read()
        found = _OWN.search(body)
        if found is None:
            self.complaints.append(f"no MessageId: {body[:500]!r}")
            return web.Response(status=400)
        if b"cknowledg" in body or b"ErrorList" in body:
            self._note(body)
            return web.Response(status=self.STATUS)
        message_id, problem = found[1].decode(), self.minds(body, dict(request.headers))
        if problem:
            self.complaints.append(problem)
            return web.Response(status=500)
        if not self.accepts(message_id, body):
            return web.Response(status=self.STATUS)
        self.taken.setdefault(message_id, 0)
        if message_id not in self.answers:
            self.taken[message_id] += 1
            document = _DOCUMENT.search(body)
            self.documents[message_id] = document[0] if document else b""
        if message_id not in self.answers or not self.SAME_ANSWER:
            self.answers[message_id] = self.acknowledgement(message_id, body)
        answer = self.answers[message_id]
        if self.SYNCHRONOUS:
            headers = {"Content-Type": answer.content_type, "SOAPAction": answer.soap_action}
            return web.Response(status=self.STATUS, body=answer.body, headers=headers)
        task = asyncio.get_running_loop().create_task(self._post(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.Response(status=self.STATUS)


def multipart(envelope: str, content_id: str, content_type: str, *part: tuple[str, str]) -> Said:
    """An envelope and parts (headers, content) as most handlers write them."""
    boundary = "----=_Part_7_1803245.1290090767210"
    pieces = [f"Content-ID: <{content_id}>\r\nContent-Type: {content_type}\r\n\r\n{envelope}"]
    pieces += [f"{headers}\r\n\r\n{content}" for headers, content in part]
    body = "".join(f"--{boundary}\r\n{piece}\r\n" for piece in pieces) + f"--{boundary}--\r\n"
    kind = f'multipart/related; boundary="{boundary}"; type="text/xml"; start="<{content_id}>"'
    return Said(kind, body.encode())
