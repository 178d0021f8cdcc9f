"""Alerts: one for each cause, no flood, none lost, none twice; whoever gets them may misbehave."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from oncewire.entry.party.settings import AlertSettings
from oncewire.entry.running import alerting
from oncewire.entry.running.alerting import (
    LONGEST_PAUSE,
    SHOWN_MAX,
    WAITING_MAX,
    Alert,
    Alerting,
    Alerts,
    Mail,
    Webhook,
    plain,
    restarted,
)
from oncewire.entry.watching.snapshot import Snapshot, look
from oncewire.errors import InvalidValue, TransportProblem
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.store.records import Incident
from oncewire.transport.smtp.relay import MailTls, RelaySettings
from tests.entry.watching.watched import Receiver, Told, watched
from tests.handler.network import START
from tests.ports import free_port
from tests.waiting import until

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def calm(tmp_path: Path) -> Snapshot:
    """What is seen of a handler with which all is well."""

    async def seen() -> Snapshot:
        async with watched(tmp_path) as party:
            return look(party.handler)

    return asyncio.run(seen())


def incidents(seen: Snapshot, *numbers: int, at: int = START) -> Snapshot:
    opened = [Incident(one, START, f"trouble {one}", f"m{one}@alpha") for one in numbers]
    return with_fields(seen, at=at, incidents=opened)


def made(folder: Path, *told: Told, **settings: int) -> Alerts:
    return Alerts("alpha", AlertSettings(**settings), folder / "alerts.json", told)  # type: ignore[arg-type]


async def test_a_flood_is_a_digest_and_what_is_left_out_is_counted(
    tmp_path: Path, calm: Snapshot
) -> None:
    told = Told()
    alerts = made(tmp_path, told, per_hour=4)
    for minute in range(120):
        numbers = range(1, 10 * minute + 1)
        alerts.look(incidents(calm, *numbers, at=START + minute * MINUTE))
        await alerts.tell(START + minute * MINUTE)
    hours = [(alert.at - START) // HOUR for alert in told.alerts]
    assert hours == [0] * 4 + [1] * 4
    counts = [len(alert.causes) + alert.more for alert in told.alerts]
    # Each of those that were there is in one of them; the last hour's are still to come.
    assert counts[:4] == [10, 10, 10, 10]
    assert counts[4] == 10 * 61 - 40
    assert sum(counts) + len(alerts.memory.pending) == 1190
    assert len(told.alerts[4].causes) == SHOWN_MAX
    assert f"{counts[4]} causes to look at" in told.alerts[4].subject
    assert f"{counts[4] - SHOWN_MAX} causes more" in told.alerts[4].text


async def test_a_restart_repeats_nothing_and_loses_nothing(tmp_path: Path, calm: Snapshot) -> None:
    first = Told(down=True)
    alerts = made(tmp_path, first)
    alerts.begin("boot-1", START)
    alerts.look(incidents(calm, 1))
    await alerts.tell(START)
    assert first.alerts == []
    # It dies with an alert that could not be sent.
    second = Told()
    alerts = made(tmp_path, second)
    alerts.begin("boot-2", START)
    alerts.look(incidents(calm, 1))
    await alerts.tell(START)
    assert second.causes == ["incident", "restarted"]
    assert "ended without being stopped" in second.alerts[1].causes[0].what
    alerts.end()
    third = Told()
    alerts = made(tmp_path, third)
    alerts.begin("boot-3", START)
    alerts.look(incidents(calm, 1, 2))
    await alerts.tell(START)
    assert sorted(third.causes) == ["incident", "restarted"]
    assert third.alerts[0].causes[0].what.endswith("after it was stopped")
    assert third.alerts[1].causes[0].blocks == "message m2@alpha cannot go on by itself"
    # A handler that is started again each second tells no more often than is allowed.
    crashing = Told()
    for boot in range(200):
        alerts = made(tmp_path, crashing)
        alerts.begin(f"crash-{boot}", START + boot * SECOND)
        alerts.look(incidents(calm, 1, 2, at=START + boot * SECOND))
        await alerts.tell(START + boot * SECOND)
    assert len(crashing.alerts) <= AlertSettings().per_hour


async def test_a_partner_that_comes_and_goes_is_one_cause(tmp_path: Path, calm: Snapshot) -> None:
    told = Told()
    alerts = made(tmp_path, told)
    (partner,) = calm.partners
    for second in range(3600):
        at = START + HOUR + second * SECOND
        # Away for longer than agreed whenever it is looked at, and back each other time.
        since = START if second % 2 else 0
        contact = with_silence(partner.contact, since)
        seen = with_fields(calm, at=at, partners=[with_fields(partner, contact=contact)])
        alerts.look(seen)
        await alerts.tell(at)
    assert told.causes == ["partner_silent"]


def with_silence(contact: object, since: int) -> object:
    from dataclasses import replace

    return replace(contact, silent_since=since, failures=1, reason="refused")  # type: ignore[type-var]


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_a_clock_that_jumps_by_a_day_neither_floods_nor_silences(
    tmp_path: Path, calm: Snapshot, by: int
) -> None:
    told = Told(down=True)
    alerts = made(tmp_path, told)
    alerts.look(incidents(calm, 1))
    await alerts.tell(START)
    assert told.tries == 1
    told.down = False
    alerts.look(incidents(calm, 1, at=START + by))
    await alerts.tell(START + by)
    await alerts.tell(START + by + LONGEST_PAUSE)
    assert told.causes == ["incident"]
    alerts.look(incidents(calm, 1, 2, at=START + by + MINUTE))
    await alerts.tell(START + by + MINUTE)
    # A day later the first is told once more, as one that was over for so long.
    assert told.causes[:1] + told.causes[-1:] == ["incident", "incident"]
    assert 2 <= len(told.causes) <= 3
    assert len(alerts.memory.made) <= 3


async def test_what_cannot_be_sent_is_tried_less_and_less_often_and_bounded(
    tmp_path: Path, calm: Snapshot
) -> None:
    told, well = Told(down=True), Told("other")
    alerts = made(tmp_path, told, well, per_hour=60)
    for number in range(72):
        at = START + number * 5 * MINUTE
        alerts.look(incidents(calm, *range(1, number + 2), at=at))
        await alerts.tell(at)
    # One way's trouble is not the other's.
    assert len(well.causes) == 72
    assert 20 < told.tries < 40
    assert len(alerts.memory.waiting["test"]) == WAITING_MAX
    told.down = False
    await alerts.tell(START + 12 * HOUR)
    assert len(told.alerts) == WAITING_MAX
    assert told.alerts[0].more == 72 - WAITING_MAX


async def test_a_memory_that_cannot_be_read_or_written_keeps_nobody_from_being_told(
    tmp_path: Path, calm: Snapshot
) -> None:
    (tmp_path / "alerts.json").write_text("{not json")
    told = Told()
    alerts = made(tmp_path, told)
    alerts._file = tmp_path / "gone" / "alerts.json"
    alerts.look(incidents(calm, 1))
    await alerts.tell(START)
    assert told.causes == ["incident"]


ALERT = Alert("alert_1", "alpha", START, [restarted("boot", START, stopped=False)])


async def test_a_webhook_gets_a_signed_event(receiver: Receiver) -> None:
    hook = Webhook(receiver.url, SECRET)
    await hook.tell(ALERT)
    await hook.close()
    ((headers, body),) = receiver.calls
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"k" * 32, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    event = json.loads(body)
    assert (event["type"], event["id"], event["source"]) == (
        "org.oncewire.alert",
        "alert_1",
        "alpha",
    )
    (cause,) = event["data"]["causes"]
    assert set(cause) == {"cause", "key", "what", "since", "blocks", "next"}


@pytest.mark.parametrize("bad", ["hangs", "redirects", "500"])
async def test_a_webhook_that_misbehaves_has_not_taken_it(
    receiver: Receiver, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "TIMEOUT", 0.3)
    receiver.bad = bad

    hook = Webhook(receiver.url, SECRET)
    with pytest.raises(TransportProblem):
        await hook.tell(ALERT)
    await hook.close()
    # A redirect is not followed.
    assert len(receiver.calls) == 1


async def test_a_webhook_that_lies_about_its_answer_is_not_read(receiver: Receiver) -> None:
    receiver.bad = "lies"

    hook = Webhook(receiver.url, SECRET)
    await hook.tell(ALERT)
    await hook.close()


async def test_mail_goes_to_everybody_once_and_waits_for_a_server_that_is_down() -> None:
    from aiosmtpd.smtp import SMTP

    class Server:
        def __init__(self) -> None:
            self.taken: list[tuple[str, bytes]] = []
            self.full = {"second@example.org"}

        async def handle_RCPT(  # noqa: N802
            self, _server: Any, _session: Any, envelope: Any, address: str, _more: Any
        ) -> str:
            if address in self.full:
                return "450 later"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(  # noqa: N802
            self, _server: Any, _session: Any, envelope: Any
        ) -> str:
            self.taken.append((envelope.rcpt_tos[0], envelope.content))
            return "250 OK"

    handler, port = Server(), free_port()
    relay = RelaySettings("alpha@example.org", "127.0.0.1", port, MailTls.NONE)
    mail = Mail(relay, ("first@example.org", "second@example.org"))
    with pytest.raises(TransportProblem):
        await mail.tell(ALERT)
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(handler, enable_SMTPUTF8=False), "127.0.0.1", port
    )
    with pytest.raises(TransportProblem, match="450"):
        await mail.tell(ALERT)
    handler.full.clear()
    await mail.tell(ALERT)
    server.close()
    assert [one[0] for one in handler.taken] == ["first@example.org", "second@example.org"]
    text = message_from_bytes(handler.taken[0][1], policy=policy.default)
    assert text["Subject"].startswith("[oncewire] alpha: the handler was started again")
    assert text["Message-ID"] == "<alert_1@example.org>"
    assert "next:   oncewire status" in text.get_content()


def test_a_subject_with_line_ends_makes_no_header() -> None:
    said = "x\r\nBcc: everybody@example.org\r\n\r\n\ud800 ü"
    evil = plain(with_fields(ALERT.causes[0], what=said, next=said))
    relay = RelaySettings("alpha@example.org", "127.0.0.1", 1, MailTls.NONE)
    written = Mail(relay, ("a@example.org",))._written(with_fields(ALERT, causes=[evil]), "a@b.c")
    assert message_from_bytes(written, policy=policy.default)["Bcc"] is None


def test_settings_that_cannot_work_are_said_at_once() -> None:
    with pytest.raises(InvalidValue, match=r"alerts\.url"):
        Webhook("ftp://example.org", SECRET)
    with pytest.raises(InvalidValue) as found:
        Webhook("https://example.org", "")
    assert "alerts.secret" in found.value.remedy


async def test_alerts_run_beside_a_handler_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "LOOK_EVERY", 0.02)

    told = Told()
    async with watched(tmp_path, ends=START + DAY) as party:
        watcher = Alerting(party.handler, made(tmp_path, told))
        watcher.start()
        await until(lambda: told.causes == ["certificate"])
        await asyncio.to_thread(watcher.stop)
    kept = json.loads((tmp_path / "alerts.json").read_text())
    assert kept["stopped"] is True
    assert kept["waiting"] == {"test": []}
