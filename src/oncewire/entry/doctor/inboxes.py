"""Inboxes: whether the places can be looked into where others leave what is for us.

A mailbox or a folder that cannot be read is seen by nobody else: partners send, and their servers
take it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncewire.entry.running.other_transports import mailbox_settings, other_transports
from oncewire.errors import OncewireError
from oncewire.transport.contract import AttemptOutcome, OutcomeKind

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

_FIXES = {
    "smtp": "check smtp.imap, smtp.imap_user, smtp.imap_password and smtp.imap_folder",
    "sftp": "check sftp.inbox, sftp.user, sftp.key and sftp.known_hosts",
    "ftp": "check ftp.inbox, ftp.user and ftp.password",
}


@dataclass(frozen=True, slots=True)
class Inbox:
    """A place that we look into, and what came of trying it."""

    transport: str
    address: str
    # Empty: it can be looked into.
    problem: str

    @property
    def fix(self) -> str:
        """What to do about it; empty if all is well."""
        return _FIXES[self.transport] if self.problem else ""


async def probe_inboxes(
    settings: Settings, timeout: float = 10.0, over: Collection[str] = tuple(_FIXES)
) -> list[Inbox]:
    """Try each place that we look into over these transports. Nothing is taken from any."""
    found = []
    ways = other_transports(settings, listen=False)
    for name in ("sftp", "ftp"):
        address = settings.addresses.get(name, "")
        if address and name in over and name in ways:
            try:
                outcome = await ways[name].probe(address, timeout=timeout)
            except OncewireError as error:
                outcome = AttemptOutcome(OutcomeKind.REFUSED, str(error))
            finally:
                await ways[name].stop()
            found.append(Inbox(name, address, _problem(outcome)))
    if "smtp" in over and "smtp" in ways and (mailbox := mailbox_settings(settings)) is not None:
        from oncewire.transport.smtp.mailbox import probe_mailbox

        outcome = await probe_mailbox(mailbox, timeout=timeout)
        address = f"imap://{mailbox.user}@{mailbox.host}:{mailbox.port}/{mailbox.folder}"
        found.append(Inbox("smtp", address, _problem(outcome)))
    return found


def _problem(outcome: AttemptOutcome) -> str:
    return "" if outcome.kind is OutcomeKind.SENT else outcome.reason or "it cannot be read"
