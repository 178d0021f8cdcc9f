"""Outage: a server of ours that is away is told of when it goes and when it is back.

Whoever waits for it asks again and again; a line for each question would fill the log.
"""

from __future__ import annotations

import logging
import time


class Outage:
    """Whether one server is away, as far as the log was told."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._since: float | None = None

    def begins(self, words: str, **facts: str) -> None:
        """The server is away; nothing is said of it where that is known."""
        if self._since is None:
            self._since = time.monotonic()
            self._logger.warning(words, extra=facts)

    def ends(self, words: str) -> None:
        """The server is there; nothing is said of it where it was not away."""
        if self._since is not None:
            away, self._since = time.monotonic() - self._since, None
            self._logger.warning(f"{words} after {away:.0f} s")
