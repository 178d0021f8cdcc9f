"""Reports over HTTP that need no handler: an agreement with its dangers, what `oncewire doctor`
finds, and the last lines of the log. They read files of the party, as the commands do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import facts, read_certificates, spoken_fingerprint
from oncewire.agreement.check.dangers import check
from oncewire.agreement.keys import rows
from oncewire.entry.doctor import checkup
from oncewire.entry.files import read_bytes
from oncewire.entry.messages.submitting import find_kept
from oncewire.entry.party.agreements import AgreementFolder, able
from oncewire.entry.party.settings import Settings
from oncewire.entry.running.background import log_file
from oncewire.errors import NotHere
from oncewire.message.instant import Instant, format_duration

TAIL = 256 * 1024
"""Bytes at the end of the log that are looked at."""

LINES_MAX = 1_000


def agreement(
    settings: Settings, folder: AgreementFolder, partner: str, now: Instant
) -> dict[str, Any]:
    """An agreement: its values and where each came from, its dangers, and both certificates."""
    kept = find_kept(folder.readable(partner), partner)
    agreed, own = kept.agreement, settings.path(settings.keys.certificate)
    ours = read_certificates(read_bytes(own, "certificate")) if own.is_file() else ()
    return {
        "partner": kept.file.stem,
        "cpa_id": agreed.cpa_id,
        "profile": agreed.profile,
        "party_ids": [each.spelled for each in agreed.partner.party.ids],
        "addresses": list(dict.fromkeys(each.address for each in agreed.partner.endpoints)),
        "begins": agreed.start,
        "ends": agreed.end,
        "words": list(_words(agreed)),
        "values": [each.as_dict() for each in rows(agreed)],
        "findings": [each.as_dict() for each in check(agreed, now=now, abilities=able(settings))],
        "certificates": [
            *_certificates("ours", (*agreed.own.certificates, *ours)),
            *_certificates(
                kept.file.stem,
                (
                    *agreed.partner.certificates,
                    *agreed.partner.signing_certificates,
                    *agreed.receiving.security.partner_certificates,
                ),
            ),
        ],
    }


def _words(agreed: Agreement) -> Iterator[str]:
    """What was agreed, in sentences."""
    terms = agreed.sending.terms
    if not terms.reliable:
        yield "A message is sent once, with best effort: whether it arrived is not known."
        return
    often, every = terms.retries + 1, format_duration(terms.retry_interval)
    yield f"A message is sent until it is acknowledged: up to {often} times, {every} apart."
    yield (
        f"Its receiver knows its id for {format_duration(terms.persist_duration)}, and stops every "
        "copy that comes within that time."
    )
    if terms.numbered:
        order = ", and the application gets them in order" if terms.ordered else ""
        yield f"Messages are numbered: at most {terms.window_size} are under way at once{order}."
    signs = {row.key: row.value for row in rows(agreed)}.get("security.sign")
    yield "What we send is signed." if signs == "true" else "What we send is not signed."


def _certificates(whose: str, ders: Iterable[bytes]) -> list[dict[str, Any]]:
    found = []
    for der in dict.fromkeys(ders):
        known = facts(der)
        if known is not None:
            found.append(
                {
                    "whose": whose,
                    "subject": known.subject,
                    "ends": known.not_after,
                    "fingerprint": spoken_fingerprint(der),
                }
            )
    return found


def doctor(settings: Settings, now: Instant) -> list[dict[str, Any]]:
    """What `oncewire doctor` finds without asking partners."""
    return [msgspec.to_builtins(each) for each in checkup.look_here(settings, now)]


def log(settings: Settings, limit: int) -> list[str]:
    """The last lines of the handler's log, the newest last."""
    path = log_file(settings)
    if not path.is_file():
        raise NotHere(
            f"there is no log file {path}",
            remedy="set log.file in oncewire.toml, or start with `oncewire serve --detach`",
        )
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    # The first one is cut where the file is longer.
    return list(deque(lines[1:] if size > TAIL else lines, maxlen=min(limit, LINES_MAX)))
