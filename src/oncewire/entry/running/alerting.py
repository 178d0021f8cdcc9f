"""Alerting: the webhook and the mail by which alerts reach the operator."""

from __future__ import annotations

from email.message import EmailMessage
from email.utils import formatdate
from typing import TYPE_CHECKING

from oncewire.entry.delivery.webhook import SignedPosts
from oncewire.entry.logs import clean_text
from oncewire.entry.party.settings import Settings, is_installed
from oncewire.entry.party.store import store_path
from oncewire.entry.running.transports import relay_settings
from oncewire.entry.watching.alerts import FILE, Alert, Alerting, Alerts, Way
from oncewire.errors import InvalidValue, NotHere, TransportProblem
from oncewire.message.instant import SECOND
from oncewire.transport.contract import OutcomeKind

if TYPE_CHECKING:
    from oncewire.handler.runtime.handler import Handler
    from oncewire.transport.smtp.relay import RelaySettings

TIMEOUT = 20.0
"""Seconds that a receiver of alerts may take."""


def alerting_of(settings: Settings, handler: Handler) -> Alerting | None:
    """What sends the alerts of this handler; None: the settings name no way."""
    ways = ways_of(settings)
    if not ways:
        return None
    file = store_path(settings).with_name(FILE)
    return Alerting(handler, Alerts(settings.party.name, settings.alerts, file, ways))


def ways_of(settings: Settings) -> list[Way]:
    """Every way that the settings name; InvalidValue or NotHere says what is wrong with one."""
    said = settings.alerts
    ways: list[Way] = []
    if said.url:
        ways.append(Webhook(said.url, said.secret))
    if said.mail_to:
        said, sender = settings.alerts, settings.alerts.mail_from or settings.smtp.mailbox
        if not is_installed("smtp"):
            raise NotHere("what mail needs is not installed", remedy="pip install 'oncewire[smtp]'")
        if not settings.smtp.relay or not sender:
            raise InvalidValue(
                "alerts.mail_to is set, and there is no server that takes mail, or no sender",
                remedy="set smtp.relay, and alerts.mail_from or smtp.mailbox",
            )
        ways.append(Mail(relay_settings(settings, sender), said.mail_to))
    return ways


class Webhook:
    """Alerts as signed CloudEvents."""

    name = "webhook"

    def __init__(self, url: str, secret: str) -> None:
        self._posts = SignedPosts(url, secret, TIMEOUT, "alerts")
        self.close = self._posts.close

    async def tell(self, alert: Alert) -> None:
        """See `Way`: a 2xx means that it was taken."""
        await self._posts.post(alert.event())


class Mail:
    """Alerts as mail to some mailboxes."""

    name = "mail"

    def __init__(self, relay: RelaySettings, mailboxes: tuple[str, ...]) -> None:
        from oncewire.transport.smtp.relay import SmtpRelay, mail_address

        self._relay = SmtpRelay(relay)
        self._mailboxes = [mail_address(f"mailto:{mailbox}") for mailbox in mailboxes]
        # Who has which alert already: one that a second mailbox refuses is not told twice.
        self._told: tuple[str, set[str]] = ("", set())

    async def tell(self, alert: Alert) -> None:
        """See `Way`: our server took it, for everybody."""
        if self._told[0] != alert.id:
            self._told = alert.id, set()
        for mailbox in self._mailboxes:
            if mailbox in self._told[1]:
                continue
            outcome = await self._relay.transact(mailbox, self._written(alert, mailbox), TIMEOUT)
            if outcome.kind is not OutcomeKind.SENT:
                raise TransportProblem(f"the mail server did not take it: {outcome.reason}")
            self._told[1].add(mailbox)

    def _written(self, alert: Alert, mailbox: str) -> bytes:
        mail, sender = EmailMessage(), self._relay.settings.sender
        mail["From"], mail["To"] = sender, mailbox
        mail["Subject"] = clean_text(f"[oncewire] {alert.subject}", 200)
        mail["Date"] = formatdate(alert.at / SECOND)
        # The same however often it is sent, so that servers drop a second one.
        mail["Message-ID"] = f"<{alert.id}@{sender.rpartition('@')[2].strip('[]')}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(alert.text)
        return bytes(mail).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

    async def close(self) -> None:
        """There is nothing to close: each mail has a connection of its own."""
