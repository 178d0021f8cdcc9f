"""Serving: a handler that runs, its control socket, and how it follows files that change."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.certificates import facts, read_certificates
from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.control.client import ControlServer, LocalHandler, Remote, running_or
from oncewire.entry.control.verbs import Status
from oncewire.entry.delivery.function import application_of
from oncewire.entry.delivery.webhook import Webhook
from oncewire.entry.files import read_bytes
from oncewire.entry.party.agreements import (
    AGREEMENT,
    FILES,
    AgreementFolder,
    Kept,
    Readable,
    Stamp,
    load_readable,
    stamp_of,
)
from oncewire.entry.party.partners import agreement_with_itself, keys_of
from oncewire.entry.party.settings import Settings, party_name
from oncewire.entry.party.store import find_restored, open_store, socket_path
from oncewire.entry.running.transports import (
    client_settings,
    http_transport,
    other_transports,
    server_settings,
)
from oncewire.errors import HandlerFailed, NotAllowed, OncewireError, StoreDamaged, TransportProblem
from oncewire.handler.context import HandlerContext, Keys, KillPoints
from oncewire.handler.delivering.deliver import Application
from oncewire.handler.perform import HANDLER
from oncewire.handler.runtime.beside import RELOAD
from oncewire.handler.runtime.commit_loop import Supervisor
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.runtime.upkeep import OutageIncident
from oncewire.handler.world import RealWorld
from oncewire.message.instant import DAY, Instant, format_instant
from oncewire.store.contract import Store
from oncewire.transport.budget import TurnsAway
from oncewire.transport.http.transport import HttpTransport

# Reloading: agreements, certificates and keys are taken over while the handler runs.
#
# The files of a party are looked at every second. What changed takes effect with the next
# message: a partner that was added is known, one whose certificate was revoked is believed no
# more, also on connections that are open already. A file that cannot be read changes nothing:
# what it said before stays in force, the log and an incident say so.


RELOAD_EVERY = 1.0

DRAIN_SECONDS = 60.0
"""How long a handler that takes no new work waits for the end of what it has begun."""

Seen = tuple[tuple[Path, Stamp], ...]


class Reloading:
    """Keeps a running handler in step with the files of its party."""

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings, self._handler = settings, handler
        self._agreements = AgreementFolder(settings)
        self._in_force: dict[Path, Kept] = {}
        self._seen: Seen = ()
        self._bad: set[str] = set()

    async def run(self) -> None:
        """Look for changes for ever."""
        while True:
            await asyncio.sleep(RELOAD_EVERY)
            seen = await asyncio.to_thread(self._look)
            if seen != self._seen or await asyncio.to_thread(self._agreements.has_changed):
                await self._take_over()

    async def begin(self) -> None:
        """Note what the handler was started with."""
        self._seen = self._look()
        found = self._agreements.readable()
        self._in_force = {kept.file: kept for kept in found.kept}
        # A file may have been mended while no handler ran.
        self._bad = await self._handler.loop.operate(_told_of)
        await self._tell(_unread(found))

    async def reload(self) -> int:
        """Read every file again and take it over; returns how many agreements are in force. The
        handlers beside this one do the same with theirs."""
        fellows = self._handler.engine.context.store.fellows
        if fellows is not None:
            fellows.tell([(RELOAD,)])
        self._agreements.forget()
        return await self._take_over()

    async def follow(self) -> None:
        """Another handler of the party was told to read its files again."""
        self._agreements.forget()
        await self._take_over()

    async def _take_over(self) -> int:
        """The same, of agreements only those that have changed."""
        self._seen = await asyncio.to_thread(self._look)
        found = self._agreements.readable()
        # Where a file cannot be read, what was agreed before holds.
        still = [self._in_force[file] for file in found.problems if file in self._in_force]
        kept = [*found.kept, *still]
        context = self._handler.engine.context
        try:
            context.agreements = in_force(self._settings, kept)
        except (OncewireError, OSError, ValueError) as problem:
            await self._tell(_unread(found) | {FILES: problem})
            return len(self._in_force)
        self._in_force = {paper.file: paper for paper in kept}
        context.state.numbered.clear()
        logger.info("agreements were read anew", extra={"count": len(kept)})
        trouble = self._take_certificates(kept)
        await self._tell(_unread(found) | trouble)
        return len(kept)

    def _take_certificates(self, kept: list[Kept]) -> dict[str, Exception]:
        """Our keys, and whom the connections believe: all of it or none, and then why not.

        What is agreed holds either way, so that a file of one partner that cannot be read keeps
        no other from being revoked.
        """
        try:
            keys = keys_of(self._settings)
            for transport in self._handler.transports.values():
                if isinstance(transport, HttpTransport):
                    transport.renew(
                        server_settings(self._settings, kept), client_settings(self._settings, kept)
                    )
        except (OncewireError, OSError, ValueError) as problem:
            return {FILES: problem}
        self._handler.engine.context.keys = keys
        logger.info("keys and certificates were read anew")
        return {}

    def _look(self) -> Seen:
        """Our own key and certificate, and those of partners."""
        settings = self._settings
        folder = settings.path(settings.keys.partners)
        files = list(settings.key_files)
        files += sorted(folder.iterdir()) if folder.is_dir() else []
        return tuple((file, stamp_of(file)) for file in files)

    async def _tell(self, bad: dict[str, Exception]) -> None:
        """Call the operator for files that cannot be taken over, and no more for those that can."""
        for channel, problem in bad.items():
            if channel not in self._bad:
                logger.error("files are not taken over", extra={"problem": str(problem)})
                await self._call(channel, problem)
        for channel in self._bad - set(bad):
            over = partial(Engine.resume, channel=channel)
            with contextlib.suppress(OncewireError):
                await self._handler.loop.operate(over)
        self._bad = set(bad)

    async def _call(self, channel: str, problem: Exception) -> None:
        trouble = StoreDamaged(str(problem)[:500], channel=channel)
        # Where the store cannot keep an incident, the log has it.
        with contextlib.suppress(OncewireError):
            await self._handler.loop.operate(lambda engine: engine.trouble(trouble))


def _told_of(engine: Engine) -> set[str]:
    """The channels of files that an operator was called for."""
    with engine.context.store.reader() as reader:
        channels = {incident.channel or "" for incident in reader.incidents()}
    return {channel for channel in channels if channel == FILES or channel.startswith(AGREEMENT)}


def _unread(found: Readable) -> dict[str, Exception]:
    """The agreements that cannot be read, by the channel under which an operator hears of each."""
    return {f"{AGREEMENT}{file.name}": error for file, error in found.problems.items()}


# Our own certificate: the operator hears that it has run out, or soon will.
#
# With a certificate that has run out a handler goes on as if nothing were wrong, and every partner
# turns it away. A line of the log each day says so.

LOOK_EVERY = 3600.0
"""Seconds between two looks; the file may be another one by then."""

_FIX = "`oncewire keys next` makes another"


class OwnCertificate:
    """Looks at it now and then."""

    def __init__(self, settings: Settings, now: Callable[[], Instant]) -> None:
        self._settings = settings
        self._now = now
        # What was said last, and on which day.
        self._told: tuple[str, int] | None = None

    async def run(self) -> None:
        """Look for as long as the handler lives."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Say what is wrong with it, if that was not said today."""
        file = self._settings.path(self._settings.keys.certificate)
        now = self._now()
        try:
            ders = read_certificates(read_bytes(file, "certificate")) if file.is_file() else ()
        except OncewireError:
            # A handler that needs it does not start; `reload` says why it cannot be read.
            return
        known = facts(ders[0]) if ders else None
        if known is None or known.not_after > now + EXPIRING_SOON:
            return
        word = "has expired" if known.not_after <= now else "expires soon"
        if self._told == (word, now // DAY):
            return
        self._told = word, now // DAY
        level = logging.ERROR if known.not_after <= now else logging.WARNING
        said = {"file": file.name, "until": format_instant(known.not_after), "remedy": _FIX}
        logger.log(level, f"our own certificate {word}", extra=said)


# The service manager: what we tell the one that started us, in systemd's words (sd_notify).
#
# `READY=1` once everything listens, `STOPPING=1` when it was asked to end, and `WATCHDOG=1` for as
# long as the handler takes turns: a handler that hangs is killed and started again.

AGAIN = 0.1
"""Seconds until a word that a busy manager did not take is said again."""


def tell(word: str) -> bool:
    """Say how we are, if anybody asked for it. False: the manager has not heard its last words yet.

    Nobody waits for that. The kernel keeps a few words for a manager that is busy, and whoever
    says another one would stand still with all of its partners until it listens.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.setblocking(False)
        try:
            supervisor.sendto(word.encode(), name)
        except BlockingIOError:
            return False
    return True


def watchdog_seconds() -> float | None:
    """How often a sign of life is expected; None: none is expected."""
    meant = os.environ.get("WATCHDOG_PID", "")
    said = os.environ.get("WATCHDOG_USEC", "")
    if not said.isdigit() or int(said) == 0 or (meant and meant != str(os.getpid())):
        return None
    return int(said) / 1_000_000


async def keep_told(supervisor: Supervisor) -> None:
    """Say that everything listens, until that was heard; then give a sign of life twice as often
    as it is expected, while the handler takes turns."""
    while not tell("READY=1"):
        await asyncio.sleep(AGAIN)
    expected = watchdog_seconds()
    if expected is None:
        return
    while True:
        try:
            await supervisor.probe(expected / 2)
            tell("WATCHDOG=1")
        except HandlerFailed:
            return
        except TimeoutError:
            logger.error("the handler takes no turns: no sign of life is given")
        await asyncio.sleep(expected / 2)


logger = logging.getLogger("oncewire.serve")

QUIET = 600.0
"""Seconds after the last partner that was sent away until that is over."""

LAST_SECONDS = 10.0
"""How long a handler that failed may take to let go of what it has."""

BUDGET, FAILED = f"{HANDLER} budget", f"{HANDLER} failed"
"""Where the incidents are of partners that were sent away, and of a handler that failed."""


def in_force(settings: Settings, kept: Iterable[Kept]) -> Agreements:
    """The agreements with partners, and the one by which the handler answers its own party."""
    own = agreement_with_itself(settings)
    found = [known.agreement for known in kept]
    return Agreements(found if own is None else [*found, own])


def make_node(
    settings: Settings,
    store: Store,
    agreements: tuple[Kept, ...],
    keys: Keys | None,
    *,
    at_rest: bool = False,
) -> HandlerContext:
    """The node of a party over an open store."""
    return HandlerContext(
        party_name(settings),
        store,
        in_force(settings, agreements),
        RealWorld(),
        keys=keys,
        body_max=settings.http.max_body,
        at_rest=at_rest,
    )


def make_handler(settings: Settings, application: Application | None = None) -> Handler:
    """A handler of the party over its transports, not started yet; it owns the store from here on.

    Everything that can be wrong with files is found before the store is opened.
    """
    agreements = tuple(load_readable(settings).kept)
    keys = keys_of(settings)
    http = http_transport(settings, agreements)
    transports = {http.name: http, **other_transports(settings)}
    kill = KillPoints.from_environment()
    store = open_store(settings)
    try:
        node = make_node(settings, store, agreements, keys)
        return Handler(node, transports, application=application, kill=kill)
    except BaseException:
        store.close()
        raise


def make_engine(settings: Settings) -> Engine:
    """An engine at rest: it stores and confirms, and leaves sending to the next handler."""
    agreements = tuple(load_readable(settings).kept)
    keys = keys_of(settings)
    store = open_store(settings, at_rest=True)
    try:
        return Engine(make_node(settings, store, agreements, keys, at_rest=True))
    except BaseException:
        store.close()
        raise


class Prepared(NamedTuple):
    """A handler that owns its store and is not started yet, and the application it calls."""

    handler: Handler
    application: Application | None


def prepare(settings: Settings) -> Prepared:
    """A handler with the application that the settings name."""
    application = application_of(settings)
    return Prepared(make_handler(settings, application), application)


class Beside(Protocol):
    """What runs beside a handler, in a thread of its own."""

    def start(self) -> None:
        """Begin; the handler listens."""

    def stop(self) -> None:
        """End, within some seconds, while the handler still runs; called in a thread."""


MakeBeside = Callable[["Settings", "Handler"], Beside | None]
"""Makes it as the settings say; None: they want none."""


@asynccontextmanager
async def serving(
    settings: Settings,
    prepared: Prepared,
    *,
    passing: bool = False,
    beside: Iterable[MakeBeside] = (),
) -> AsyncIterator[LocalHandler]:
    """Start a handler, its control socket and what runs beside them; stop all of it gracefully at
    the end."""
    handler, application = prepared
    reloading = Reloading(settings, handler)
    running = LocalHandler(handler, passing=passing, reload=reloading.reload, settings=settings)
    server = ControlServer(socket_path(settings), running, handler.engine.context.store.spool)
    company = [one for make in beside if (one := make(settings, handler)) is not None]
    begun: list[Beside] = []
    try:
        await handler.start()
        _tell_of_refused_partners(handler)
        await reloading.begin()
        handler.supervisor.keep(reloading.run())
        if handler.hearing is not None:
            handler.hearing.reload = lambda: handler.supervisor.spawn(reloading.follow())
        handler.supervisor.keep(OwnCertificate(settings, handler.engine.context.now).run())
        running.url = getattr(handler.transports.get("http"), "url", "")
        await server.start()
        # Nothing else tells the operator that partners know more than is kept here.
        restored = find_restored(settings)
        if restored is not None:
            said = {"backup": restored.taken, "remedy": "`oncewire doctor` says what to do"}
            logger.warning("the party was restored from a backup", extra=said)
        for one in company:
            one.start()
            begun.append(one)
        yield running
    finally:
        for one in begun:
            await asyncio.to_thread(one.stop)
        await server.stop()
        await handler.stop()
        if isinstance(application, Webhook):
            await application.close()


def _tell_of_refused_partners(handler: Handler) -> None:
    """An incident for partners that the endpoint sends away: their documents wait. It is closed
    when none was sent away for a while."""
    outage = OutageIncident(handler.loop, BUDGET, QUIET)
    handler.supervisor.keep(outage.run())

    async def call(problem: str) -> None:
        trouble = StoreDamaged(problem, channel=BUDGET)
        outage.came(trouble)
        # Where the store cannot keep an incident, the log has it.
        with suppress(OncewireError):
            await handler.loop.operate(lambda engine: engine.trouble(trouble))

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


async def serve(
    settings: Settings,
    ready: Callable[[LocalHandler], None],
    beside: Iterable[MakeBeside] = (),
    port: AbstractAsyncContextManager[Callable[[], str]] | None = None,
) -> Status:
    """Run until SIGTERM or SIGINT; `ready` is called once everything listens, what runs `beside`
    the handler and the admin `port` too.

    A second signal does not wait for what is under way: nothing is lost by that, since
    whatever was not finished is found again at the next start. A handler that failed ends the
    process with HandlerFailed, and the next one finds an incident that says why.
    """
    stop = asyncio.Event()
    here: list[LocalHandler] = []
    # From the first moment on: a signal without a handler would end us in the middle of a word.
    _hear_signals(here, stop)
    prepared = await only_one(settings)
    failure: HandlerFailed | None = None
    async with (
        serving(settings, prepared, beside=beside) as running,
        port or nullcontext(str) as problem,
    ):
        running.admin_problem = problem
        here.append(running)
        logger.info("ready", extra={"party": settings.party.name, "url": running.url})
        ready(running)
        # Wait until we are stopped, or until the handler has failed; then why.
        supervisor = running.handler.supervisor
        telling = asyncio.ensure_future(keep_told(supervisor))
        stopped, failed = (
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future(supervisor.failed()),
        )
        await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
        for task in (telling, stopped, failed):
            task.cancel()
        failure = failed.result() if failed.done() and not failed.cancelled() else None
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


def record_failure(settings: Settings, failure: HandlerFailed) -> None:
    """Leave an incident for the operator, in a store that no other process has open now."""
    try:
        engine = make_engine(settings)
        try:
            problem = f"{failure.problem}; look into the log"
            engine.trouble(StoreDamaged(problem, channel=FAILED))
            engine.commit()
        finally:
            engine.context.store.close()
    except Exception:
        logger.exception("the failure is in the log alone: no incident could be kept")


def _hear_signals(here: list[LocalHandler], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop, stop)

    async def reload(running: LocalHandler) -> None:
        await running.reload()

    def hang_up() -> None:
        # A terminal that closes is no reason to end.
        logger.info("a hangup: agreements and certificates are read anew")
        for running in here:
            running.handler.supervisor.spawn(reload(running))

    loop.add_signal_handler(signal.SIGHUP, hang_up)

    async def drain(running: LocalHandler) -> None:
        await running.handler.drain(DRAIN_SECONDS)
        stop.set()

    def no_more() -> None:
        logger.info("no new work is taken; it ends when what was begun is done")
        for running in here:
            running.handler.supervisor.spawn(drain(running))

    loop.add_signal_handler(signal.SIGUSR1, no_more)


def _stop(stop: asyncio.Event) -> None:
    if stop.is_set():
        os._exit(130)
    stop.set()


# The event loop of a handler: uvloop where it is installed, Python's own where it is not.

T = TypeVar("T")

YOUNG = 20_000
"""So many values are made before it is looked which of them refer to each other in a circle. Few of
ours do, and each message is some hundred values: Python's 700 are looked through for nothing."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a handler to its end."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    # What was loaded to begin with stays for good.
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    ended: T = uvloop.run(work)
    return ended
