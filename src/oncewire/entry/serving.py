"""Serving: a handler that runs, with the control socket through which commands reach it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from oncewire.entry.assemble import make_handler
from oncewire.entry.control import socket_path
from oncewire.entry.control_client import Remote
from oncewire.entry.control_server import ControlServer
from oncewire.entry.delivery.choice import application_of
from oncewire.entry.delivery.webhook import Webhook
from oncewire.entry.reach import first
from oncewire.entry.verbs import Running, Status
from oncewire.errors import NotAllowed, TransportProblem

if TYPE_CHECKING:
    from oncewire.entry.settings import Settings
    from oncewire.handler.application import Application
    from oncewire.handler.handler import Handler

logger = logging.getLogger("oncewire.serve")


class Prepared(NamedTuple):
    """A handler that owns its store and is not started yet, and the application it calls."""

    handler: Handler
    application: Application | None


def prepare(settings: Settings) -> Prepared:
    """A handler with the application that the settings name."""
    application = application_of(settings)
    return Prepared(make_handler(settings, application), application)


@asynccontextmanager
async def serving(
    settings: Settings, prepared: Prepared, *, passing: bool = False
) -> AsyncIterator[Running]:
    """Start a handler and its control socket; stop both gracefully at the end."""
    handler, application = prepared
    running = Running(handler, passing=passing)
    server = ControlServer(socket_path(settings), running)
    try:
        await handler.start()
        running.url = getattr(handler.transports.get("http"), "url", "")
        await server.start()
        yield running
    finally:
        await server.stop()
        await handler.stop()
        if isinstance(application, Webhook):
            await application.close()


async def only_one(settings: Settings) -> Prepared:
    """The one handler of the party: another one is an error, a passing command is waited for."""
    while True:
        found = await first(settings, lambda: prepare(settings))
        if not isinstance(found, Remote):
            return found
        try:
            status = await found.status()
        except TransportProblem:
            # It ended in this very moment.
            continue
        finally:
            await found.close()
        if not status.passing:
            raise NotAllowed(
                f"the handler of {status.party} runs already, as process {status.pid}",
                remedy="use that one, or stop it with `oncewire stop`",
            )
        await asyncio.sleep(0.1)


async def serve(settings: Settings, ready: Callable[[Running], None]) -> Status:
    """Run until SIGTERM or SIGINT; `ready` is called once everything listens.

    A second signal does not wait for what is under way: nothing is lost by that, since
    whatever was not finished is found again at the next start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with serving(settings, await only_one(settings)) as running:
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, _stop, stop)
        logger.info("ready", extra={"party": settings.party.name, "url": running.url})
        tell_supervisor("READY=1")
        ready(running)
        await stop.wait()
        logger.info("stopping", extra={"party": settings.party.name})
        tell_supervisor("STOPPING=1")
        status = await running.status()
    logger.info("stopped", extra={"party": settings.party.name})
    return status


def _stop(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(130)
    stop.set()


def tell_supervisor(word: str) -> None:
    """Tell systemd (Type=notify) how we are, if it started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.sendto(word.encode(), name)
