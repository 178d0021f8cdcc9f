"""The service manager: what we tell the one that started us, in systemd's words (sd_notify).

`READY=1` once everything listens, `STOPPING=1` when it was asked to end, and `WATCHDOG=1` for as
long as the handler takes turns: a handler that hangs is killed and started again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from oncewire.errors import HandlerFailed

if TYPE_CHECKING:
    from oncewire.handler.loop.supervisor import Supervisor

logger = logging.getLogger("oncewire.serve")


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
    """How often a sign of life is expected; None: nobody waits for one."""
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
