"""Processes without the wait: a process that has imported everything forks a party on demand.

Starting Python and importing the handler takes most of a second, and a proof by `kill -9`
starts hundreds of parties. A forked party is a process like any other: its own memory, its
own files, its own death. Commands come in as JSON lines, one `party.Settings` each; out go
what the parties say, and how each of them ended. When the input ends, so do they all.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path

from tests.handler.processes import party


def main() -> None:
    """Fork and bury until the input ends."""
    signals, wake = os.pipe()
    for end in (signals, wake):
        os.set_blocking(end, False)
    # A child's death must interrupt the wait; the handler itself has nothing to do.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    ready = selectors.DefaultSelector()
    ready.register(0, selectors.EVENT_READ)
    ready.register(signals, selectors.EVENT_READ)
    children: dict[int, int] = {}
    text = b""
    while True:
        for key, _ in ready.select():
            if key.fd == signals:
                os.read(signals, 4096)
                continue
            piece = os.read(0, 65536)
            if not piece:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                settings = party.Settings(**json.loads(line))
                children[_fork(settings)] = settings.run
        _bury(children)


def _fork(settings: party.Settings) -> int:
    pid = os.fork()
    if pid:
        _say(run=settings.run, event="born", pid=pid)
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = Path(settings.folder) / f"{settings.name}.log"
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        party.main(settings)
        code = 0
    except BaseException:  # noqa: BLE001  (whatever it was, the child must not live on as a parent)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _bury(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        run = children.pop(pid)
        _say(run=run, event="ended", code=os.waitstatus_to_exitcode(status))


def _say(**words: object) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())


if __name__ == "__main__":
    main()
