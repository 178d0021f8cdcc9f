"""Ending: how a turn of a machine ended for whoever asked for it."""

from __future__ import annotations

from enum import Enum


class Ending(Enum):
    """How a turn ended for whoever asked for it."""

    DONE = "done"
    # The process is not there, or died on the way.
    DOWN = "down"
    # The store could not take it; nothing happened.
    FULL = "full"
    RAISED = "raised"
