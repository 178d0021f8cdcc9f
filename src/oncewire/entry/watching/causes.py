"""Causes: what the operator is told of a running handler, each once.

A cause has a key that stays the same while it lasts, what is wrong, what that blocks, and the
command that goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oncewire.entry.files import number_of, size_of
from oncewire.entry.logs import clean_text
from oncewire.message.instant import DAY, Duration, Instant, format_instant

if TYPE_CHECKING:
    from oncewire.entry.party.settings import AlertSettings
    from oncewire.entry.watching.snapshot import PartnerSeen, Snapshot

SENTENCE_MAX = 500
"""Characters of each sentence of an alert."""

NAME_MAX = 200
"""Characters of a partner's name in one."""


class CauseKind(StrEnum):
    """What sort of cause it is."""

    INCIDENT = "incident"
    SILENT = "partner_silent"
    CERTIFICATE = "certificate"
    AGREEMENT = "agreement"
    DISK = "disk"
    STUCK = "stuck"
    RESTARTED = "restarted"


class Cause(Struct, frozen=True):
    """One cause of an alert."""

    key: str
    kind: CauseKind
    # What is wrong, and since when (microseconds since 1970).
    what: str
    since: Instant
    # What does not go on because of it.
    blocks: str
    # The command that goes on from here.
    next: str


def plain(cause: Cause) -> Cause:
    """The cause in texts that any file, mail or event can hold; its key is such a text."""
    texts = {name: _plain(getattr(cause, name)) for name in ("what", "blocks", "next")}
    return replace(cause, **texts)


def _plain(text: str) -> str:
    return clean_text(text, SENTENCE_MAX).encode(errors="replace").decode()


def causes_of(seen: Snapshot, settings: AlertSettings) -> Iterator[Cause]:
    """Everything that is wrong with a handler that takes turns."""
    for incident in seen.incidents:
        about = f"message {incident.message_id}" if incident.message_id else ""
        about = about or (f"channel {incident.channel}" if incident.channel else "the handler")
        yield Cause(
            f"incident {incident.id}",
            CauseKind.INCIDENT,
            incident.reason,
            incident.opened_at,
            f"{about} cannot go on by itself",
            "oncewire incidents",
        )
    ahead = settings.days * DAY
    if seen.certificate_ends is not None and seen.certificate_ends <= seen.at + ahead:
        yield _of_end(
            CauseKind.CERTIFICATE,
            "our own certificate",
            "",
            seen.certificate_ends,
            seen.at,
            "with a certificate that has ended every partner turns us away",
            "oncewire keys next",
        )
    for partner in seen.partners:
        yield from _of_partner(partner, seen.at, settings)
    free = seen.space.free
    if free is not None and free < settings.space:
        yield Cause(
            "disk",
            CauseKind.DISK,
            f"{size_of(free)} are free on the disk, less than {size_of(settings.space)}",
            seen.at,
            "a full disk stops all messages: nothing is taken, sent or acknowledged",
            "oncewire doctor",
        )


def stuck(problem: str, at: Instant) -> Cause:
    """The handler takes no turns."""
    return Cause(
        "stuck",
        CauseKind.STUCK,
        f"the handler does not work: {problem}",
        at,
        "nothing is sent, received or delivered; nothing that was stored is lost",
        "oncewire doctor",
    )


def restarted(boot: str, at: Instant, *, stopped: bool) -> Cause:
    """Another run of the handler began."""
    how = "after it was stopped" if stopped else "after it ended without being stopped"
    return Cause(
        f"restarted {boot}",
        CauseKind.RESTARTED,
        f"the handler was started again, {how}",
        at,
        "nothing: what an earlier run left is taken up",
        "oncewire status",
    )


def _of_partner(partner: PartnerSeen, now: Instant, settings: AlertSettings) -> Iterator[Cause]:
    name, named = partner.party_id[:NAME_MAX], quote(partner.party_id)
    contact = partner.contact
    if partner.is_silent(now, settings.silent_intervals):
        yield Cause(
            _plain(f"silent {partner.peer}"),
            CauseKind.SILENT,
            f"{name} has been silent since {format_instant(contact.silent_since)}: "
            f"{number_of(contact.failures, 'attempt')} failed, the last by {contact.reason}",
            contact.silent_since,
            f"every message to {name} waits; it is tried at once when it answers",
            f"oncewire ping {named}; oncewire resume --partner {named}",
        )
    for kind, noun, ends, do in (
        (CauseKind.CERTIFICATE, "the certificate of", partner.certificate_ends, "doctor"),
        (CauseKind.AGREEMENT, "the agreement with", partner.agreement_ends, "agreement check"),
    ):
        if ends is not None and ends <= now + settings.days * DAY:
            blocks = f"from then on nothing is taken from {name} or sent to it"
            what = f"{noun} {name}"
            yield _of_end(kind, what, partner.peer, ends, now, blocks, f"oncewire {do}")


def _of_end(
    kind: CauseKind,
    what: str,
    peer: str,
    ends: Instant,
    now: Instant,
    blocks: str,
    command: str,
) -> Cause:
    """Something ends soon, or has ended: two causes, each told once."""
    over = ends <= now
    word = "ended" if over else f"ends in {_days_of(ends - now)},"
    return Cause(
        _plain(f"{kind.value} {'over' if over else 'soon'} {ends} {peer}"),
        kind,
        f"{what} {word} on {format_instant(ends)[:10]}",
        now,
        blocks,
        command,
    )


def _days_of(left: Duration) -> str:
    return number_of(left // DAY, "day")
