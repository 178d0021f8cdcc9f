"""What the driver judges by itself: the cost follows what is new."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from oncewire.pipeline.judging import small_refresh
from oncewire.pipeline.judging.refresh import refresh
from oncewire.pipeline.judging.small_refresh import changed_days
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import LEDGER, OPEN, arrow, nullable
from oncewire.pipeline.sources.ingest import take_in
from oncewire.pipeline.sources.journal_source import open_book
from tests.pipeline.books import make_stores, small_year

NO_SPARK: Any = SimpleNamespace()


def run(lake: Lake, stores: Iterable[Path]) -> None:
    with lake.writing() as version:
        taken = take_in(NO_SPARK, lake, version, [open_book(store) for store in stores])
        lake.publish(refresh(NO_SPARK, lake, taken.version))


def ledger(lake: Lake) -> dict[str, dict[str, Any]]:
    folders = [lake.root / entry.path for entry in OPEN["ledger"].entries(lake.current())]
    rows = pa.concat_tables([ds.dataset(folder, format="parquet").to_table() for folder in folders])
    return {row["message_id"]: row for row in rows.to_pylist()}


def days_of(rows: Iterable[dict[str, Any] | None]) -> set[date]:
    instants = ("submitted_at", "received_at")
    return {row[name].date() for row in rows if row for name in instants if row[name] is not None}


def test_days_on_which_nothing_changed_are_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is open is judged again in every run, however old it is."""
    lake, nodes = Lake(tmp_path / "lake"), small_year(200, 7)[1]
    most = {node: rows[: len(rows) - 12] for node, rows in nodes.items()}
    run(lake, make_stores(tmp_path / "stores", most))
    before = ledger(lake)
    counted: list[Collection[date] | None] = []
    real: Callable[..., Any] = small_refresh.partner_service

    def watched(rows: Any, days: Collection[date] | None = None) -> Any:
        counted.append(days)
        return real(rows, days)

    monkeypatch.setattr(small_refresh, "partner_service", watched)
    rest = {node: rows[len(most[node]) :] for node, rows in nodes.items()}
    run(lake, make_stores(tmp_path / "stores", rest))
    after = ledger(lake)
    changed = [
        row
        for name, row in after.items()
        if {**row, "extent": ""} != {**before.get(name, {}), "extent": ""}
        for row in (row, before.get(name))
    ]
    waiting = days_of(row for row in before.values() if row["extent"] == "not_yet")
    assert len(counted) == 1
    assert counted[0] is not None
    assert set(counted[0]) <= days_of(changed)
    assert len(counted[0]) < len(waiting | days_of(changed))


def test_a_message_that_moves_to_another_day_leaves_the_one_that_it_was_on() -> None:
    shape = arrow(nullable(LEDGER))

    def of(*rows: tuple[str, int, str]) -> pa.Table:
        names = ("message_id", "submitted_at", "verdict")
        made = [(name, datetime(2025, 3, day, 12, tzinfo=UTC), word) for name, day, word in rows]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in made], shape)

    before = of(("moved", 1, "lost"), ("same", 5, "lost"), ("judged otherwise", 7, "lost"))
    now = of(("moved", 2, "lost"), ("same", 5, "lost"), ("judged otherwise", 7, "twice"))
    assert changed_days(now, before) == {date(2025, 3, 1), date(2025, 3, 2)}
    assert changed_days(of(("new", 9, "lost")), before) == {date(2025, 3, 9)}
