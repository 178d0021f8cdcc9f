"""What readiness, metrics and alerts say while something goes wrong, minute by minute."""

from __future__ import annotations

import asyncio
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.entry.party.settings import AlertSettings
from oncewire.entry.running.alerting import Alerts
from oncewire.entry.watching.metrics import metrics_text
from oncewire.entry.watching.snapshot import SPACE_NONE, judge, readiness, snapshot
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.store.sqlite import store as sqlite
from tests.entry.watching.watched import Told, agreement, value, watched
from tests.handler.network import START

GIGABYTE = 1024**3


def alerts_to(told: Told, folder: Path, **settings: int) -> Alerts:
    return Alerts("alpha", AlertSettings(**settings), folder / "alerts.json", [told])  # type: ignore[arg-type]


async def test_a_partner_dies_and_is_back(tmp_path: Path) -> None:
    told = Told()
    alerts = alerts_to(told, tmp_path)
    async with watched(tmp_path) as party:
        party.line.cut = True
        await party.send(1)
        story = []
        for minute in range(1, 21):
            if minute == 15:
                party.line.cut = False
            seen = await party.step(MINUTE)
            alerts.look(seen)
            await alerts.tell(seen.at)
            silent = value(seen, "oncewire_partner_silent_seconds")
            said = judge(seen)
            assert said.ready
            assert said.reasons == []
            assert ("1 partner is silent" in said.doubts) == bool(silent)
            story.append((minute, silent / 60, len(told.alerts)))
            assert value(seen, "oncewire_up") == 1
            oldest = value(seen, "oncewire_partner_oldest_unsettled_seconds")
            assert oldest == minute * 60
        # Twice the retry interval is ten minutes. It is tried each five, and from the fifteenth
        # minute on that gets through.
        silence = [float(minute) for minute in range(1, 15)] + [0.0] * 6
        assert [one[1] for one in story] == silence
        assert [one[2] for one in story] == [0] * 9 + [1] * 11
        (alert,) = told.alerts
        (cause,) = alert.causes
        assert "urn:test:beta has been silent since" in cause.what
        assert "every message to urn:test:beta waits" in cause.blocks
        assert cause.next.endswith("oncewire resume --partner urn:test:beta")
        assert value(seen, "oncewire_partner_attempts_total") == 5


async def test_certificates_and_agreements_run_out(tmp_path: Path) -> None:
    told = Told()
    alerts = alerts_to(told, tmp_path)
    deal = replace(agreement(), end=START + 40 * DAY)
    async with watched(tmp_path, deal, ends=START + 35 * DAY) as party:
        story = []
        for day in range(1, 43):
            seen = await party.step(DAY)
            alerts.look(seen)
            await alerts.tell(seen.at)
            assert value(seen, "oncewire_certificate_days_left") == 35 - day
            assert value(seen, "oncewire_partner_agreement_days_left") == 40 - day
            assert judge(seen).ready
            doubts = [one for one in judge(seen).doubts if "certificate" in one]
            assert bool(doubts) == (day >= 5)
            story.append((day, told.causes))
        first: dict[int, str] = {}
        for day, causes in story:
            first.setdefault(len(causes), f"{day} {causes[-1] if causes else ''}")
        assert first == {
            0: "1 ",
            1: "5 certificate",
            2: "10 agreement",
            3: "35 certificate",
            4: "40 agreement",
        }
        assert "ends in 30 days" in told.alerts[0].causes[0].what
        assert told.alerts[2].causes[0].what.startswith("our own certificate ended on")


async def test_a_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    alerts = alerts_to(told, tmp_path)
    usage = namedtuple("usage", "total used free")
    async with watched(tmp_path) as party:
        story = []
        for minute, free in enumerate([3, 2, 1.0, 0.9, 0.5, 0.01, 0.001, 0.001, 3, 3, 0.9]):
            left = int(free * GIGABYTE)
            monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _, n=left: usage(9, 0, n))
            seen = await party.step(MINUTE)
            alerts.look(seen)
            await alerts.tell(seen.at)
            said = judge(seen)
            assert value(seen, "oncewire_disk_free_bytes") == left
            story.append((minute, said.ready, bool(said.doubts), told.causes))
            assert said.ready == (left >= SPACE_NONE)
        assert [one[3] for one in story] == [[]] * 3 + [["disk"]] * 8
        assert [one[2] for one in story] == [False] * 3 + [True] * 2 + [False] * 5 + [True]
        # Over for an hour, it is told anew.
        monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _: usage(9, 0, 3 * GIGABYTE))
        alerts.look(await party.step(HOUR))
        monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _: usage(9, 0, 9))
        alerts.look(await party.step(HOUR))
        await alerts.tell(party.world.time)
        assert told.causes == ["disk", "disk"]


async def test_a_loop_stops_and_goes_on(tmp_path: Path) -> None:
    told = Told()
    alerts = alerts_to(told, tmp_path)
    async with watched(tmp_path) as party:
        handler, gate = party.handler, threading.Event()
        loop = asyncio.get_running_loop()

        def ask() -> None:
            assert readiness(handler).ready
            assert readiness(handler).ready
            assert b"oncewire_up 1.0" in metrics_text(handler)
            loop.call_soon_threadsafe(gate.wait, 60)
            said = readiness(handler, 0.2)
            assert not said.ready
            assert said.reasons == ["it has taken no turn for 0.2 seconds"]
            assert not readiness(handler, 0.2).ready
            text = metrics_text(handler, 0.2).decode()
            assert "oncewire_up 0.0" in text
            assert "oncewire_loop" not in text
            for _ in range(30):
                party.world.time += 10 * SECOND
                alerts.look_stuck(said.reasons[0], party.world.time)
            gate.set()
            assert readiness(handler).ready
            alerts.look(snapshot(handler))

        await asyncio.to_thread(ask)
        await alerts.tell(party.world.time)
        assert told.causes == ["stuck"]
        assert "nothing is sent" in told.alerts[0].causes[0].blocks
        handler.loop.fail(MemoryError("too much"))
        failed = await asyncio.to_thread(readiness, handler)
        assert not failed.ready
        assert "MemoryError" in failed.reasons[0]


async def test_a_handler_that_does_not_run_is_not_ready(tmp_path: Path) -> None:
    async with watched(tmp_path) as party:
        handler = party.handler
    said = await asyncio.to_thread(readiness, handler)
    assert not said.ready
    assert said.reasons == ["the handler does not run (start `oncewire serve`)"]
