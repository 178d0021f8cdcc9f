"""Serving: a handler that runs, with the control socket through which commands reach it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from oncewire.entry.control.client import Remote
from oncewire.entry.control.doers import Running
from oncewire.entry.control.language import socket_path
from oncewire.entry.control.server import ControlServer
from oncewire.entry.control.verbs import Status
from oncewire.entry.delivery.choice import application_of
from oncewire.entry.delivery.webhook import Webhook
from oncewire.entry.running.assemble import make_engine, make_handler
from oncewire.entry.running.own_certificate import OwnCertificate
from oncewire.entry.running.ownership import running_or
from oncewire.entry.running.reloading import Reloading
from oncewire.entry.running.restored import find_restored
from oncewire.entry.running.service_manager import keep_told, tell
from oncewire.errors import (
    HandlerFailed,
    NotAllowed,
    OncewireError,
    StoreDamaged,
    TransportProblem,
)
from oncewire.handler.loop.outages import Outage
from oncewire.handler.perform import HANDLER
from oncewire.transport.turned_away import TurnsAway

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.handler.delivering.application import Application
    from oncewire.handler.handler import Handler
    from oncewire.handler.loop.supervisor import Supervisor

logger = logging.getLogger("oncewire.serve")


QUIET = 600.0
"""Seconds after the last partner that was sent away until that is over."""


LAST_SECONDS = 10.0
"""How long a handler that failed may take to let go of what it has."""


BUDGET, FAILED = f"{HANDLER} budget", f"{HANDLER} failed"
"""Where the incidents are of partners that were sent away, and of a handler that failed."""


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
    reloading = Reloading(settings, handler)
    running = Running(handler, passing=passing, reloading=reloading)
    server = ControlServer(socket_path(settings), running, handler.engine.node.store.spool)
    try:
        await handler.start()
        _tell_of_refused_partners(handler)
        await reloading.begin()
        handler.supervisor.keep(reloading.run())
        handler.supervisor.keep(OwnCertificate(settings, handler.engine.node.now).run())
        running.url = getattr(handler.transports.get("http"), "url", "")
        await server.start()
        _say_if_restored(settings)
        yield running
    finally:
        await server.stop()
        await handler.stop()
        if isinstance(application, Webhook):
            await application.close()


def _say_if_restored(settings: Settings) -> None:
    """Nothing else tells whoever runs it that partners know more than is kept here."""
    restored = find_restored(settings)
    if restored is not None:
        said = {"backup": restored.taken, "remedy": "`oncewire doctor` says what to do"}
        logger.warning("the party was restored from a backup", extra=said)


def _tell_of_refused_partners(handler: Handler) -> None:
    """An incident for partners that the endpoint sends away: their documents wait. It is closed
    when none was sent away for a while."""
    outage = Outage(handler.operate, BUDGET, QUIET)
    handler.supervisor.keep(outage.run())

    async def call(problem: str) -> None:
        outage.came()
        trouble = StoreDamaged(problem, channel=BUDGET)
        # Where the store cannot keep an incident, the log has it.
        with suppress(OncewireError):
            await handler.operate(lambda engine: engine.trouble(trouble))

    for transport in handler.transports.values():
        # Those that listen: HTTP and mail.
        if isinstance(transport, TurnsAway):
            transport.on_turned_away(lambda problem: handler.supervisor.spawn(call(problem)))


async def only_one(settings: Settings) -> Prepared:
    """The one handler of the party: another one is an error, a passing command is waited for."""
    while True:
        found = await running_or(settings, lambda: prepare(settings))
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
    whatever was not finished is found again at the next start. A handler that failed ends the
    process with HandlerFailed, and the next one finds an incident that says why.
    """
    stop = asyncio.Event()
    here: list[Running] = []
    # From the first moment on: a signal that nobody hears would end us in the middle of a word.
    _hear_signals(here, stop)
    prepared = await only_one(settings)
    failure: HandlerFailed | None = None
    async with serving(settings, prepared) as running:
        here.append(running)
        logger.info("ready", extra={"party": settings.party.name, "url": running.url})
        ready(running)
        failure = await _until_over(stop, running.handler.supervisor)
        logger.info("stopping", extra={"party": settings.party.name})
        tell("STOPPING=1")
        if failure is not None:
            # Whatever hangs now must not keep the next one from starting.
            end = threading.Timer(LAST_SECONDS, os._exit, (failure.exit_code,))
            end.daemon = True
            end.start()
        status = await running.status()
    if failure is not None:
        record_failure(settings, failure)
        raise failure
    logger.info("stopped", extra={"party": settings.party.name})
    return status


async def _until_over(stop: asyncio.Event, supervisor: Supervisor) -> HandlerFailed | None:
    """Wait until somebody stops us, or until the handler has failed; then why."""
    telling = asyncio.ensure_future(keep_told(supervisor))
    stopped, failed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(supervisor.failed())
    await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in (telling, stopped, failed):
        task.cancel()
    return failed.result() if failed.done() and not failed.cancelled() else None


def record_failure(settings: Settings, failure: HandlerFailed) -> None:
    """Leave an incident for the operator, in a store that nobody else has open now."""
    try:
        engine = make_engine(settings)
        try:
            problem = f"{failure.problem}; look into the log"
            engine.trouble(StoreDamaged(problem, channel=FAILED))
            engine.commit()
        finally:
            engine.node.store.close()
    except Exception:
        logger.exception("the failure is in the log alone: no incident could be kept")


def _hear_signals(here: list[Running], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop, stop)

    async def reload(running: Running) -> None:
        await running.reload()

    def hang_up() -> None:
        # A terminal that closes is no reason to end.
        logger.info("a hangup: agreements and certificates are read anew")
        for running in here:
            running.handler.supervisor.spawn(reload(running))

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def _stop(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(130)
    stop.set()
