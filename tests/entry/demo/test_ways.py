"""The demo over each transport: its server is started and stopped by it, the verdict is clean."""

import asyncio
from pathlib import Path

import pytest

from oncewire.entry.doctor.judging import journal_rows
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue
from oncewire.lab.demo.play import BUYER, Demo, Plan
from oncewire.lab.demo.ways import way_called
from oncewire.protocol.notes import Kind

USED = {
    "smtp": {"smtp"},
    "sftp": {"sftp"},
    "nats": {"broker"},
    "fallback": {"http", "smtp"},
}


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("transport", USED)
def test_every_order_arrives_once_over_it(transport: str, tmp_path: Path) -> None:
    plan = Plan(tmp_path / "demo", messages=12, limit=150, transport=transport)
    done = asyncio.run(Demo(plan, lambda _progress: None).run())
    assert done.good, done
    rows = journal_rows(load(plan.folder / BUYER, environ={}).settings)
    assert {row.transport for row in rows if row.kind == Kind.SENT} == USED[transport]


def test_a_way_that_the_demo_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="no transport 'pigeon'"):
        way_called("pigeon")
