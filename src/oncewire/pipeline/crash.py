"""Places where tests kill the driver, so that recovery is shown and not supposed.

Nothing happens here unless ONCEWIRE_CRASH_AT names a place; only tests set it. It holds
`place:count:file`: each time the place is reached a line is added to the file, which proves it,
and from the given count on the whole process group of the driver is killed. With
ONCEWIRE_CRASH_HOW set to `raise` nothing is killed: the place fails that many times and then works.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "ONCEWIRE_CRASH_AT"
HOW_VARIABLE = "ONCEWIRE_CRASH_HOW"
GROUP_VARIABLE = "ONCEWIRE_CRASH_GROUP"
"""The driver's process group; Spark's Python workers leave it and could not find it otherwise."""

PLACES = (
    "before_offset_log",
    "after_offset_log",
    "mid_task",
    "before_publishing",
    "after_publishing",
    "before_commit_log",
)


def reached(place: str) -> None:
    """Here is the place."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    name, count, proof = wanted.split(":", 2)
    if name != place:
        return
    handle = os.open(proof, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{place}\n".encode())
    os.fsync(handle)
    size = os.fstat(handle).st_size
    os.close(handle)
    reached_now = size // (len(place) + 1)
    if os.environ.get(HOW_VARIABLE) == "raise":
        if reached_now <= int(count):
            raise RuntimeError(f"{place} fails for the {reached_now}. time, as a test asked")
    elif reached_now >= int(count):  # Two tasks at once may both see the later count.
        os.killpg(int(os.environ[GROUP_VARIABLE]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
