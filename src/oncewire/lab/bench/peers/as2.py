"""AS2 by pyas2lib over HTTP: a message, and its receipt in the reply. Nothing is stored.

python -m oncewire.lab.bench.peers.as2 FOLDER [--signed] [--receive]
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.entry.party.keys import make_keys
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.child import Child
from oncewire.lab.bench.side import Task, obey

if TYPE_CHECKING:
    from aiohttp import web

_SENDER, _RECEIVER = "bench-sender", "bench-receiver"


def missing() -> str:
    """What is not installed; empty: everything is there."""
    if find_spec("pyas2lib") is None:
        return "not installed: `make bench-setup` installs pyas2lib"
    return ""


@contextmanager
def _long_versions() -> Iterator[None]:
    """oscrypto, which pyas2lib stands on, reads versions of OpenSSL with one digit each only."""
    search: Any = re.search

    def patient(pattern: Any, text: Any, flags: int = 0) -> Any:
        if isinstance(pattern, str):
            pattern = pattern.replace(r"(\d\.\d\.\d[a-z]*)", r"(\d+\.\d+\.\d+[a-z]*)")
        return search(pattern, text, flags)

    re.search = patient  # type: ignore[assignment]
    try:
        yield
    finally:
        re.search = search


def library() -> Any:
    """pyas2lib itself."""
    with _long_versions():
        import pyas2lib

    return pyas2lib


class Parties:
    """Both as pyas2lib has them."""

    def __init__(self, folder: Path, *, signed: bool) -> None:
        self.as2 = library()
        self._folder = folder
        said: dict[str, Any] = {"mdn_mode": "SYNC", "validate_certs": False}
        if signed:
            said |= {"sign": True, "digest_alg": "sha256", "mdn_digest_alg": "sha256"}
        self.organizations = {
            name: self.as2.Organization(name, sign_key=self._pair(name), sign_key_pass=None)
            for name in (_SENDER, _RECEIVER)
        }
        self.partners = {
            name: self.as2.Partner(name, verify_cert=self._file(name, "crt"), **said)
            for name in (_SENDER, _RECEIVER)
        }

    def _pair(self, name: str) -> bytes:
        return self._file(name, "key") + self._file(name, "crt")

    def _file(self, name: str, kind: str) -> bytes:
        return (self._folder / f"{name}.{kind}").read_bytes()


async def receive(parties: Parties) -> None:
    """The receiver: reads each message and answers with its receipt."""
    from aiohttp import web

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        message = parties.as2.Message()
        status, problem, receipt = message.parse(
            head.encode() + b"\r\n" + await request.read(),
            lambda _: parties.organizations[_RECEIVER],
            lambda _: parties.partners[_SENDER],
        )
        if status != "processed":
            return web.Response(status=500, text=str(problem))
        return web.Response(body=receipt.content, headers=dict(receipt.headers))

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await obey(_nothing, port=runner.addresses[0][1])


async def send(parties: Parties, port: int) -> None:
    """The sender."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://127.0.0.1:{port}/"

        async def one(document: bytes) -> None:
            message = parties.as2.Message(
                parties.organizations[_SENDER], parties.partners[_RECEIVER]
            )
            message.build(document, filename="order.xml", content_type="application/xml")
            async with session.post(
                url, data=message.content, headers=dict(message.headers)
            ) as response:
                head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
                raw = head.encode() + b"\r\n" + await response.read()
            status, said = parties.as2.Mdn().parse(raw, lambda *_: message)
            if status != "processed":
                raise RuntimeError(f"the receipt says {status} {said}")

        async def push(task: Task) -> Task:
            document, done = b"x" * task["size"], 0
            began = time.perf_counter()
            end = began + task["seconds"]

            async def one_after_the_other() -> None:
                nonlocal done
                while time.perf_counter() < end:
                    await one(document)
                    done += 1

            await asyncio.gather(*(one_after_the_other() for _ in range(task["in_flight"])))
            return {"messages": done, "seconds": time.perf_counter() - began}

        await obey(push)


async def _nothing(_: Task) -> Task:
    return {}


def main(arguments: list[str]) -> None:
    """The process; it starts its receiver itself."""
    why = missing()
    if why:
        asyncio.run(obey(_nothing, missing=why))
        return
    folder, options = Path(arguments[0]), arguments[1:]
    if "--receive" in options:
        asyncio.run(receive(Parties(folder, signed="--signed" in options)))
        return
    for name in (_SENDER, _RECEIVER):
        make_keys(folder, name, now=RealWorld().now())
    with Child("oncewire.lab.bench.peers.as2", folder, "--receive", *options) as receiver:
        parties = Parties(folder, signed="--signed" in options)
        asyncio.run(send(parties, receiver.first["port"]))


if __name__ == "__main__":
    main(sys.argv[1:])
