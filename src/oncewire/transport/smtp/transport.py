"""SMTP as one transport: out through our mail server, in at our own door, or from a mailbox."""

from __future__ import annotations

from collections import Counter

from oncewire.transport.budget import Call, Unserved
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind
from oncewire.transport.smtp.listener import NAME, ListenerSettings, SmtpListener
from oncewire.transport.smtp.mailbox import MailboxReader, MailboxSettings
from oncewire.transport.smtp.relay import RelaySettings, SmtpRelay


class SmtpTransport:
    """Every message, acknowledgement and error is a mail (TRN-3); none is answered on the
    connection that brought it (TRN-5)."""

    name = NAME
    can_answer = False

    def __init__(
        self,
        relay: RelaySettings | None = None,
        listener: ListenerSettings | None = None,
        mailbox: MailboxSettings | None = None,
    ) -> None:
        self._relay = SmtpRelay(relay) if relay is not None else None
        self._listener = SmtpListener(listener) if listener is not None else None
        self._mailbox = MailboxReader(mailbox) if mailbox is not None else None

    @property
    def port(self) -> int:
        """The port on which mail comes in; 0: none."""
        return self._listener.port if self._listener is not None else 0

    def on_turned_away(self, call: Call) -> None:
        """Set what is called when our mail server sends partners away."""
        if self._listener is not None:
            self._listener.turned_away.call = call

    def unserved(self) -> Counter[Unserved]:
        """How many our listener did not serve."""
        return Counter() if self._listener is None else self._listener.turned_away.counts

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to take mail; TransportProblem if that cannot be."""
        if self._listener is not None:
            await self._listener.start(on_delivery)
        if self._mailbox is not None:
            self._mailbox.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """Send one mail; see `Transport`."""
        if self._relay is None:
            return _no_relay()
        return await self._relay.send(cargo, address, timeout=timeout)

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether our mail server takes mail for the address; see `Transport`."""
        if self._relay is None:
            return _no_relay()
        return await self._relay.probe(address, timeout=timeout)

    async def stop(self) -> None:
        """Take no more mail."""
        if self._listener is not None:
            await self._listener.stop()
        if self._mailbox is not None:
            await self._mailbox.stop()


def _no_relay() -> AttemptOutcome:
    return AttemptOutcome(OutcomeKind.REFUSED, "no mail server is set up: smtp.relay is empty")
