"""Our own certificate: whoever runs a handler hears that it has run out, or soon will.

With a certificate that has run out a handler goes on as if nothing were wrong, and every partner
turns it away. A line of the log each day says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncewire.agreement.certificates import facts, read_certificates
from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.files import read_bytes
from oncewire.errors import OncewireError
from oncewire.message.instant import DAY, Instant, format_instant

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

logger = logging.getLogger("oncewire.serve")

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
