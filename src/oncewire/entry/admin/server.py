"""The process of the admin port.

It is a child of the handler's, with an interpreter of its own: whatever is done to this port, the
thread that serves partners waits for none of it. The parent binds the socket, so that a port in
use is known at the start; a pipe carries the settings in, and ends the child when the parent is
gone, however it went. It reads the store by itself and asks the handler, like any command, through
the control socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec

from oncewire.entry.files import PRIVATE_FOLDER, make_folder
from oncewire.entry.party.settings import AdminSettings, Settings, is_installed, load
from oncewire.errors import InvalidValue, OncewireError, TransportProblem

logger = logging.getLogger("oncewire.admin")

READY, STOP = b"ready\n", b"stop\n"
START_SECONDS = 60.0
STOP_SECONDS = 5.0
PATIENCE = 20
"""How often it is looked whether a port in use becomes free, a tenth of a second apart."""

AGAIN, AGAIN_MOST = 1.0, 30.0
"""Seconds after which a child that died is started anew: twice as many each time that one does not
come up, up to the most."""

HEAD_SECONDS = 10.0
"""How long a caller may take for the head of a request."""

STALL_SECONDS = 30.0
"""How long a caller may leave unread what it is sent."""

LOG_BYTES, LOG_FILES = 10 * 1024**2, 5
NICE = 5
"""The admin port gives way to partners where the processor is short."""


# --- the parent's side -------------------------------------------------------------------------


def check_settings(settings: Settings) -> None:
    """Refuse an admin port that cannot work, or would speak in the clear to other machines."""
    admin = settings.admin
    if admin.port and admin.port == settings.http.port:
        raise InvalidValue(
            f"admin.port and http.port are both {admin.port}",
            remedy="give the admin port another number",
        )
    if (admin.certificate is None) != (admin.key is None):
        raise InvalidValue(
            "admin.certificate and admin.key belong together", remedy="name both, or neither"
        )
    try:
        loopback = ipaddress.ip_address(admin.host).is_loopback
    except ValueError:
        loopback = admin.host == "localhost"
    if admin.certificate is None and not loopback:
        raise InvalidValue(
            f"the admin port at {admin.host} can be reached from other machines, without TLS",
            remedy="set admin.certificate and admin.key, or admin.host = 127.0.0.1",
        )
    if admin.certificate is not None and admin.key is not None:
        _check_pair(settings.path(admin.certificate), settings.path(admin.key))


def _check_pair(certificate: Path, key: Path) -> None:
    for name, file in (("certificate", certificate), ("key", key)):
        if not file.is_file():
            raise InvalidValue(f"admin.{name}: there is no file {file}", remedy="correct its name")
    try:
        # An empty password, lest one is asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:
        why = getattr(error, "reason", "") or error.strerror or "they are no PEM"
        raise InvalidValue(
            f"admin.certificate {certificate} and admin.key {key} cannot be used: {why}",
            remedy="name a certificate and its own private key, both PEM, the key without password",
        ) from None


@contextlib.asynccontextmanager
async def admin_port(
    settings: Settings, flags: Mapping[str, Any]
) -> AsyncIterator[Callable[[], str]]:
    """The admin port, for as long as the handler runs; nothing where none is set. What is given
    tells why it does not come up; empty: all is well."""
    if not settings.admin.port:
        yield str
        return
    check_settings(settings)
    if not is_installed("admin"):
        said = {"remedy": "pip install 'oncewire[admin]'"}
        logger.warning("the admin port is set, and its libraries are not installed", extra=said)
        yield str
        return
    port = _AdminPort(settings, flags)
    await port.begin()
    keeping = asyncio.ensure_future(port.keep())
    where = {"host": settings.admin.host, "port": settings.admin.port}
    logger.info("the admin port listens", extra=where)
    try:
        yield lambda: port.problem
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def _bound(settings: Settings) -> socket.socket:
    """The socket; the child of a handler that was killed lets go of it within moments."""
    admin = settings.admin
    family = socket.AF_INET6 if ":" in admin.host else socket.AF_INET
    for left in range(PATIENCE, -1, -1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((admin.host, admin.port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if not left:
                raise TransportProblem(
                    f"the admin port {admin.host}:{admin.port} cannot be used: {error.strerror}",
                    remedy="set another admin.port, or end what listens there",
                ) from None
        else:
            return listener
        await asyncio.sleep(0.1)
    raise AssertionError


class _AdminPort:
    """The child and the socket that it is given."""

    def __init__(self, settings: Settings, flags: Mapping[str, Any]) -> None:
        self._settings, self._flags = settings, flags
        self._listener: socket.socket | None = None
        self._child: Process | None = None
        self.problem = ""

    async def begin(self) -> None:
        """Start a child; it listens when this returns. One that does not come up leaves nothing
        open: callers are refused, and wait for no answer."""
        try:
            if self._listener is None:
                self._listener = await _bound(self._settings)
            self._child = await _started(self._settings, self._flags, self._listener)
        except BaseException:
            self._close()
            raise
        self.problem = ""

    async def keep(self) -> None:
        """Start the child anew whenever it dies; end it at the end."""
        pause = AGAIN
        try:
            while True:
                if self._child is not None:
                    status, self._child = await self._child.wait(), None
                    self.problem = f"its process ended with status {status}"
                    said = {"status": status}
                    logger.error("the admin port ended, and is started anew", extra=said)
                    pause = AGAIN
                await asyncio.sleep(pause)
                try:
                    await self.begin()
                except TransportProblem as error:
                    self.problem = error.problem
                    pause = min(2 * pause, AGAIN_MOST)
                    why = {"reason": error.problem, "again_in": pause}
                    logger.error("the admin port does not come up", extra=why)
        finally:
            self._close()
            if self._child is not None:
                if self._child.stdin is not None:
                    self._child.stdin.write(STOP)
                    self._child.stdin.close()
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await self._child.wait()
                except TimeoutError:
                    self._child.kill()
                    await self._child.wait()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def _started(
    settings: Settings, flags: Mapping[str, Any], listener: socket.socket
) -> Process:
    """A child that is ready."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(listener.fileno(),),
    )
    said = {
        "folder": str(settings.folder),
        "flags": dict(flags),
        # As they were checked at the start: what the file says since counts from the next one.
        "admin": msgspec.to_builtins(settings.admin, enc_hook=str),
        "socket": listener.fileno(),
    }
    assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018
    line = b""
    try:
        child.stdin.write(json.dumps(said, default=str).encode() + b"\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                line = await child.stdout.readline()
    finally:
        if line != READY:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
    if line == READY:
        return child
    status = await child.wait()
    why = line.decode("utf-8", "replace").strip() or f"it said nothing, and ended with {status}"
    raise TransportProblem(
        f"the admin port did not start: {why}", remedy="look into the log, or set admin.port = 0"
    )


# --- the child's side --------------------------------------------------------------------------


async def _serve() -> None:
    """Serve until the parent says stop."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from oncewire.entry.admin.app import AdminApp

    class Guarded(H11Protocol):
        """HTTP that does not wait for callers who neither ask nor read."""

        _head: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._head, self._stall):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

        def resume_writing(self) -> None:
            if self._stall is not None:
                self._stall.cancel()
            super().resume_writing()

        def _await_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
            self._head = self.loop.call_later(HEAD_SECONDS, self._end_if_idle)

        def _end_if_idle(self) -> None:
            """Hang up on a caller whose request does not come."""
            cycle: Any = self.cycle
            if cycle is None or cycle.response_complete:
                self.transport.abort()

    loop = asyncio.get_running_loop()
    said = json.loads(await loop.run_in_executor(None, sys.stdin.buffer.readline))
    admin = msgspec.convert(said["admin"], AdminSettings, dec_hook=lambda kind, value: kind(value))
    now = load(Path(said["folder"]), flags=said["flags"]).settings
    settings = replace(now, admin=admin)
    check_settings(settings)
    _start_logging(settings)
    certificate = None if admin.certificate is None else str(settings.path(admin.certificate))
    key = None if admin.key is None else str(settings.path(admin.key))
    config = uvicorn.Config(
        AdminApp(settings),
        http=Guarded,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=admin.connections,
        h11_max_incomplete_event_size=32 * 1024,
        timeout_graceful_shutdown=2,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    # What it cannot load is told to the parent.
    config.load()
    server = uvicorn.Server(config)

    def until_told() -> None:
        """The parent says when to stop; one that died says nothing, and the next one wants the
        port."""
        if sys.stdin.buffer.readline() != STOP:
            os._exit(1)
        server.should_exit = True

    threading.Thread(target=until_told, daemon=True).start()
    with socket.socket(fileno=said["socket"]) as listener:
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        await server.serve([listener])


def _start_logging(settings: Settings) -> None:
    """The access log rotates; all else goes where the handler's log goes."""
    from oncewire.entry.logs import JsonLines, start_logging

    log = settings.log
    start_logging(log.level, log.form.value, None if log.file is None else settings.path(log.file))
    file = settings.path(settings.admin.access_log)
    make_folder(file.parent, PRIVATE_FOLDER)
    before = os.umask(0o077)
    try:
        handler = RotatingFileHandler(
            file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"
        )
    finally:
        os.umask(before)
    handler.setFormatter(JsonLines())
    # What strangers do wrong is no news: only faults of the server itself are.
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.handlers = logging.getLogger("oncewire").handlers
    uvicorn.setLevel(logging.ERROR)
    access = logging.getLogger("oncewire.access")
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    access.propagate = False


def main() -> None:
    """Run the child until its parent is gone."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    try:
        asyncio.run(_serve())
    except (OncewireError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
