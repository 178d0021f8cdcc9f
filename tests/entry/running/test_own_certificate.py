"""A handler whose own certificate has run out says so: once a day, and from its start on."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.serving import OwnCertificate
from oncewire.message.instant import DAY, SECOND, Instant
from tests.entry.served import Served
from tests.ports import free_port

YEARS = 10 * 366 * DAY


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.message)
        for record in caplog.records
        if "our own certificate" in record.message
    ]


def made(folder: Path, now: Instant) -> Settings:
    make_party(folder / "alpha", "alpha", now=now, port=free_port(), key_kind=KeyKind.EC)
    return load(folder / "alpha", environ={}).settings


def test_it_is_said_once_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # At noon, so that the half hour below lies in one day.
    start = time.time_ns() // 1000 // DAY * DAY + DAY // 2
    clock = [start]
    certificate = OwnCertificate(made(tmp_path, start), lambda: clock[0])
    certificate.look()
    assert said(caplog) == []
    clock[0] = start + YEARS
    for _ in range(30):
        certificate.look()
        clock[0] += 60 * SECOND
    assert said(caplog) == [("ERROR", "our own certificate has expired")]
    clock[0] += DAY
    certificate.look()
    assert len(said(caplog)) == 2
    assert "KEY" not in caplog.text


def test_a_handler_says_it_as_it_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(tmp_path, time.time_ns() // 1000 - YEARS)
    with Served(tmp_path) as served, caplog.at_level(logging.WARNING):
        served.start("alpha")
    assert said(caplog) == [("ERROR", "our own certificate has expired")]
