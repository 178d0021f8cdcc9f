"""Alerts: the operator is told of each cause once, by webhook and by mail."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator
from email.message import EmailMessage
from email.utils import formatdate
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from oncewire.entry.delivery.webhook import SignedPosts
from oncewire.entry.files import PRIVATE, number_of, size_of, write_new
from oncewire.entry.logs import clean_text
from oncewire.entry.party.settings import AlertSettings, Settings, is_installed
from oncewire.entry.party.store import store_path
from oncewire.entry.running.transports import relay_settings
from oncewire.entry.watching.snapshot import PartnerSeen, Snapshot, snapshot
from oncewire.errors import InvalidValue, NotHere, OncewireError, TransportProblem
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, format_instant
from oncewire.transport.contract import OutcomeKind

if TYPE_CHECKING:
    from oncewire.handler.runtime.handler import Handler
    from oncewire.transport.smtp.relay import RelaySettings


# Alerts: the operator is told of each cause once, by webhook and by mail.
#
# A cause has a key that stays the same while it lasts, what is wrong, what that blocks, and the
# command that goes on from there.
#
# Guarantee: a cause that lasts is told once, also over restarts, and not again before it has been
# over for an hour. In an hour there are no more alerts than the settings say; what comes beyond
# is told together in the next one, with its count. An alert that could not be sent is tried again
# with growing pauses, under the same id, and waits in a file of the party's data folder
# meanwhile. All of it happens in a thread of its own: no message waits for an alert.


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
    kind: CauseKind, what: str, peer: str, ends: Instant, now: Instant, blocks: str, command: str
) -> Cause:
    """Something ends soon, or has ended: two causes, each told once."""
    over = ends <= now
    word = "ended" if over else f"ends in {number_of((ends - now) // DAY, 'day')},"
    return Cause(
        _plain(f"{kind.value} {'over' if over else 'soon'} {ends} {peer}"),
        kind,
        f"{what} {word} on {format_instant(ends)[:10]}",
        now,
        blocks,
        command,
    )


# --- alerts ---

logger = logging.getLogger("oncewire.alerts")

FILE = "alerts.json"

LOOK_EVERY = 10.0
"""Seconds between two looks."""

STOP_SECONDS = 5.0
"""How long the end of a handler waits for alerts that are being sent."""

OVER_FOR: Duration = HOUR
"""How long a cause must have been over before it is told again: a partner that comes and goes is
one cause."""

SEEN_EVERY: Duration = 10 * MINUTE
"""How often it is written down that a cause is still there."""

SINGLE_MAX = 3
"""Causes that come together and are told one by one; more of them are told in one alert."""

SHOWN_MAX = 20
"""Causes that one alert tells of; the others are counted."""

TOLD_MAX = 10_000
"""Causes that are remembered; beyond it the earliest are forgotten."""

WAITING_MAX = 50
"""Alerts that wait for one way to be told; beyond it the earliest are given up and counted."""

FIRST_PAUSE: Duration = 10 * SECOND
LONGEST_PAUSE: Duration = 15 * MINUTE
"""Between two tries to send what could not be sent."""


class Alert(Struct, frozen=True):
    """What is told at once: one cause or several."""

    id: str
    party: str
    at: Instant
    causes: list[Cause]
    # Causes that it counts and does not show.
    more: int = 0

    @property
    def subject(self) -> str:
        """It in one line."""
        if len(self.causes) == 1 and not self.more:
            return f"{self.party}: {self.causes[0].what}"[:200]
        return f"{self.party}: {number_of(len(self.causes) + self.more, 'cause')} to look at"

    @property
    def text(self) -> str:
        """It for a person who reads mail."""
        parts = [
            f"{cause.what}\n  since:  {format_instant(cause.since)}\n  blocks: {cause.blocks}\n"
            f"  next:   {cause.next}\n"
            for cause in self.causes
        ]
        if self.more:
            parts.append(f"{number_of(self.more, 'cause')} more: oncewire incidents\n")
        return "\n".join(parts)

    def event(self) -> dict[str, Any]:
        """It as a CloudEvent."""
        return {
            "specversion": "1.0",
            "id": self.id,
            "source": self.party,
            "type": "org.oncewire.alert",
            "subject": self.subject,
            "time": format_instant(self.at),
            "datacontenttype": "application/json",
            "data": {
                "party": self.party,
                "count": len(self.causes) + self.more,
                "causes": [
                    {
                        "cause": cause.kind.value,
                        "key": cause.key,
                        "what": cause.what,
                        "since": format_instant(cause.since),
                        "blocks": cause.blocks,
                        "next": cause.next,
                    }
                    for cause in self.causes
                ],
            },
        }


class Way(Protocol):
    """A way by which alerts reach the operator."""

    name: str

    async def tell(self, alert: Alert) -> None:
        """Tell it; TransportProblem where it was not taken."""

    async def close(self) -> None:
        """Let go of connections."""


class Memory(Struct):
    """What is remembered over restarts."""

    # The run of the handler that was seen last, and whether it was stopped.
    boot: str = ""
    stopped: bool = True
    # When each cause was last there, by its key; the earliest first.
    told: dict[str, Instant] = field(default_factory=dict)
    # Causes that are to be told.
    pending: dict[str, Cause] = field(default_factory=dict)
    # When alerts were made, within the last hour.
    made: list[Instant] = field(default_factory=list)
    # What each way has not told yet, and how many it gave up.
    waiting: dict[str, list[Alert]] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)


class Alerts:
    """Decides what is told, and tells it. Time is what its caller says."""

    def __init__(
        self, party: str, settings: AlertSettings, file: Path, ways: Iterable[Way]
    ) -> None:
        self._party, self._settings, self._file = party, settings, file
        self._ways = {way.name: way for way in ways}
        self.memory = _read(file)
        self.memory.waiting = {
            name: waiting for name, waiting in self.memory.waiting.items() if name in self._ways
        }
        self._written: bytes = b""
        # Of a way that failed: how long it is left alone, and until when.
        self._pauses: dict[str, tuple[Duration, Instant]] = {}

    def begin(self, boot: str, now: Instant) -> None:
        """A run of the handler began: tell of it, if there was one before."""
        memory = self.memory
        if memory.boot and memory.boot != boot:
            again = restarted(boot, now, stopped=memory.stopped)
            memory.pending[again.key] = again
        memory.boot, memory.stopped = boot, False
        self._keep()

    def end(self) -> None:
        """The handler is stopped on purpose."""
        self.memory.stopped = True
        self._keep()

    def look(self, seen: Snapshot) -> None:
        """See what is wrong now."""
        self._meet(causes_of(seen, self._settings), seen.at)

    def look_stuck(self, problem: str, now: Instant) -> None:
        """The handler takes no turns: nothing else is known of it."""
        self._meet([stuck(problem, now)], now, only=CauseKind.STUCK)

    def _meet(self, there: Iterable[Cause], now: Instant, only: CauseKind | None = None) -> None:
        memory = self.memory
        found = {cause.key: cause for cause in there}
        for key, cause in found.items():
            if key not in memory.told and key not in memory.pending:
                memory.pending[key] = plain(cause)
            elif key in memory.told and abs(now - memory.told[key]) > SEEN_EVERY:
                memory.told[key] = now
        if only is None:
            # A cause that ended before its alert was sent needs none.
            memory.pending = {
                key: cause
                for key, cause in memory.pending.items()
                if key in found or cause.kind is CauseKind.RESTARTED
            }
            # A clock that was set back has not made a cause last longer.
            memory.told = {
                key: min(at, now)
                for key, at in list(memory.told.items())[-TOLD_MAX:]
                if now - at < OVER_FOR
            }
        self._make(now)
        self._keep()

    def _make(self, now: Instant) -> None:
        """Make alerts of what is pending, as many as the hour has left."""
        memory, settings = self.memory, self._settings
        memory.made = [min(at, now) for at in memory.made if now - min(at, now) < HOUR]
        left = settings.per_hour - len(memory.made)
        if not memory.pending or left < 1:
            return
        causes = list(memory.pending.values())
        if len(causes) <= SINGLE_MAX and len(causes) < left:
            alerts = [self._alert([cause], 0, now) for cause in causes]
        else:
            alerts = [self._alert(causes[:SHOWN_MAX], len(causes[SHOWN_MAX:]), now)]
        memory.made += [now] * len(alerts)
        memory.told |= dict.fromkeys(memory.pending, now)
        memory.pending = {}
        for name in self._ways:
            waiting = [*memory.waiting.get(name, ()), *alerts]
            memory.waiting[name] = waiting[-WAITING_MAX:]
            lost = len(waiting) - len(memory.waiting[name])
            memory.given_up[name] = memory.given_up.get(name, 0) + lost

    def _alert(self, causes: list[Cause], more: int, now: Instant) -> Alert:
        text = "\0".join((self._party, str(now), *(cause.key for cause in causes)))
        name = "alert_" + hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
        return Alert(name, self._party, now, causes, more)

    async def tell(self, now: Instant) -> None:
        """Tell what waits, on every way that is not left alone for now."""
        await asyncio.gather(*(self._tell(way, now) for way in self._ways.values()))

    async def _tell(self, way: Way, now: Instant) -> None:
        pause, until = self._pauses.get(way.name, (0, 0))
        # A clock that was set back must not make the pause longer than it is.
        if now < until <= now + pause:
            return
        while waiting := self.memory.waiting.get(way.name):
            alert = waiting[0]
            lost = self.memory.given_up.get(way.name, 0)
            told = replace(alert, more=alert.more + lost) if lost else alert
            try:
                await way.tell(told)
            except Exception as problem:  # noqa: BLE001  (whatever it is, another try may work)
                pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
                self._pauses[way.name] = pause, now + pause
                if pause == FIRST_PAUSE:
                    facts = {"way": way.name, "problem": str(problem) or type(problem).__name__}
                    logger.warning("an alert could not be sent; it is tried again", extra=facts)
                return
            self._pauses.pop(way.name, None)
            self.memory.given_up.pop(way.name, None)
            # Another look may have cut the list meanwhile.
            with contextlib.suppress(ValueError):
                self.memory.waiting[way.name].remove(alert)
            self._keep()

    async def close(self) -> None:
        """Let go of every way."""
        for way in self._ways.values():
            await way.close()

    def _keep(self) -> None:
        content = msgspec.json.encode(self.memory)
        if content == self._written:
            return
        try:
            write_new(self._file, content, PRIVATE, replace=True)
            self._written = content
        except (OncewireError, OSError) as problem:
            # On a full disk it is told all the same, perhaps once more after a restart.
            logger.warning("alerts are not remembered", extra={"problem": str(problem)})


def _read(file: Path) -> Memory:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Memory)
    except FileNotFoundError:
        return Memory()
    except (OSError, msgspec.MsgspecError) as problem:
        logger.warning("what was told is unknown", extra={"problem": str(problem)[:200]})
        return Memory()


class Alerting:
    """Looks at a running handler again and again, in a thread with an event loop of its own."""

    def __init__(self, handler: Handler, alerts: Alerts) -> None:
        self._handler, self._alerts = handler, alerts
        self._stop = threading.Event()

        def work() -> None:
            try:
                asyncio.run(self._run())
            except Exception:
                logger.exception("no more alerts are sent")

        self._thread = threading.Thread(target=work, name="oncewire alerts", daemon=True)
        # The time of the last snapshot, on both clocks.
        self._at: tuple[Instant, Duration] | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, within some seconds; what waits is told by the next run."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    async def _run(self) -> None:
        context = self._handler.engine.context
        self._alerts.begin(context.boot, context.world.now())
        telling: asyncio.Task[None] | None = None
        while not self._stop.is_set():
            now = await asyncio.to_thread(self._look)
            if telling is None or telling.done():
                telling = asyncio.ensure_future(self._alerts.tell(now))
            await asyncio.to_thread(self._stop.wait, LOOK_EVERY)
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        if self._handler.loop.failed is None:
            self._alerts.end()
        await self._alerts.close()

    def _look(self) -> Instant:
        world = self._handler.engine.context.world
        try:
            seen = snapshot(self._handler)
        except (OncewireError, TimeoutError) as problem:
            at, mono = self._at or (world.now(), world.mono())
            now = at + world.mono() - mono
            if not self._stop.is_set():
                self._alerts.look_stuck(str(problem), now)
            return now
        self._at = seen.at, world.mono()
        self._alerts.look(seen)
        return seen.at


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
