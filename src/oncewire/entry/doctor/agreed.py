"""Agreed: what `oncewire doctor` finds in agreements that can be read: their dates, and whether
the partner was told of the key that we have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.doctor.checkup import Finding, Grade
from oncewire.entry.party.agreements import Kept
from oncewire.entry.party.importing import other_certificate
from oncewire.message.instant import Instant, format_instant

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

_RENEW = "agree on a new period, and correct `end` in its file, or import the new CPA"


def check_agreed(settings: Settings, now: Instant, kept: Iterable[Kept]) -> Iterator[Finding]:
    """What is the matter with each agreement; nothing where all is well."""
    for known in kept:
        what = f"agreement {known.file.stem}"
        yield from _period(what, known, now)
        for other in other_certificate(settings, known.agreement):
            yield Finding(what, Grade.BAD, other.sentence, other.fix)


def _period(what: str, known: Kept, now: Instant) -> Iterator[Finding]:
    start, end = known.agreement.start, known.agreement.end
    if start is not None and now < start:
        said = f"it begins at {format_instant(start)}; until then nothing can be sent under it"
        yield Finding(what, Grade.BAD, said, "wait, or agree on an earlier beginning")
    elif end is not None and now >= end:
        said = f"it ended at {format_instant(end)}: nothing can be sent or taken under it"
        yield Finding(what, Grade.BAD, said, _RENEW)
    elif end is not None and now >= end - EXPIRING_SOON:
        yield Finding(what, Grade.WARNING, f"it ends at {format_instant(end)}", _RENEW)
