"""Metrics: each has a help, is in the page and on the dashboard, and no name can spoil the text."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields
from prometheus_client.parser import text_string_to_metric_families

from oncewire.entry.cli.output import EXIT_CODES
from oncewire.entry.watching.metrics import LABEL_MAX, METRICS, written
from oncewire.entry.watching.snapshot import LOOKED_AT, look
from oncewire.message.instant import SECOND
from oncewire.store.records import Unsettled
from oncewire.store.sql.reader import SqlReader
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.watching.watched import watched

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/watching.md").read_text()
NAMES = {metric.name for metric in METRICS}


def test_the_page_has_every_metric_and_every_exit_code() -> None:
    for metric in METRICS:
        labels = ", ".join(metric.labels)
        assert f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |" in PAGE
    assert set(re.findall(r"^\| `(oncewire_\w+)`", PAGE, re.MULTILINE)) == NAMES
    for code, says in EXIT_CODES.items():
        assert f"| {code} | {says} |" in PAGE


def test_the_dashboard_asks_for_metrics_that_exist_and_leaves_none_out() -> None:
    board = json.loads((ROOT / "docs/grafana.json").read_text())
    asked = set(re.findall(r"oncewire_\w+", json.dumps(board)))
    assert asked == NAMES
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel["targets"])


async def test_the_text_is_what_prometheus_reads_with_a_help_for_each(tmp_path: Path) -> None:
    async with watched(tmp_path) as party:
        await party.send(1)
        found = list(text_string_to_metric_families(written(look(party.handler)).decode()))
    kinds = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    assert {family.name for family in found} == set(kinds)
    for family in found:
        assert family.documentation == kinds[family.name].help
        assert family.type == kinds[family.name].kind.value
        for sample in family.samples:
            assert sample.name == kinds[family.name].name
            assert set(sample.labels) == set(kinds[family.name].labels)
    for metric in METRICS:
        assert metric.help.endswith(".")


@pytest.mark.parametrize(
    "name",
    ['a"} 1\noncewire_up 0', "back\\slash", "line\u2028end", "\x00\x1b[31m", "\ud800", "x" * 5000],
)
async def test_a_hostile_name_is_one_label_and_nothing_else(tmp_path: Path, name: str) -> None:
    async with watched(tmp_path) as party:
        seen = look(party.handler)
    (partner,) = seen.partners
    hostile = [with_fields(partner, peer=name), with_fields(partner, peer=name + "\x01")]
    text = written(with_fields(seen, partners=hostile)).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert [sample.value for sample in found["oncewire_up"].samples] == [1]
    labels = [sample.labels["partner"] for sample in found["oncewire_partner_arrivals"].samples]
    assert len(set(labels)) == 2
    assert all(len(label) < LABEL_MAX + 10 for label in labels)


async def test_a_thousand_partners_are_a_bounded_text(tmp_path: Path) -> None:
    async with watched(tmp_path) as party:
        seen = look(party.handler)
    (partner,) = seen.partners
    many = [with_fields(partner, peer=f"urn:test:partner-{one}") for one in range(1000)]
    began = time.thread_time()
    text = written(with_fields(seen, partners=many))
    print(f"{len(text):,} bytes in {time.thread_time() - began:.3f} s of a processor")
    lines = text.count(b"\n")
    # Eight figures of each, and four of its outcomes.
    assert 11_000 < lines < 14_000
    assert len(text) < 1_500_000


def test_a_look_reads_as_many_rows_of_a_large_store_as_of_a_small_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", node="alpha")
    connection = store._connection
    assert connection is not None
    columns = [row[1:4] for row in connection.execute("PRAGMA table_info(outgoing)")]
    steps = []
    for count in (1_000, 20_000):
        before = connection.execute("SELECT count(*) FROM outgoing").fetchall()[0][0]
        with connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")
            for number in range(before, count):
                _insert(connection, columns, number)
        with store.reader() as reader:
            assert isinstance(reader, SqlReader)
            walked = [0]
            reader._run.args[0].set_progress_handler(lambda w=walked: _step(w), 10)
            found = reader.oldest_unsettled(LOOKED_AT)
            reader._run.args[0].set_progress_handler(None)
        assert len(found) == 3 * LOOKED_AT or count == 1_000
        assert found[0] == Unsettled("urn:peer", None, found[0].state, SECOND)
        steps.append(walked[0] / len(found))
    assert steps[1] < 1.5 * steps[0]
    store.close()


def _step(walked: list[int]) -> bool:
    walked[0] += 1
    return False


STATES = ("waiting", "outstanding", "suspended", "delivered")


def _insert(connection: object, columns: list[tuple[str, str, int]], number: int) -> None:
    """A row with something in every column that must have something."""
    given: dict[str, object] = {
        "position": number + 1,
        "message": number + 1,
        "state": STATES[number % 4],
        "peer": "urn:peer",
        "submitted_at": SECOND * (number // 4 + 1),
    }
    for name, kind, needed in columns:
        if needed:
            given.setdefault(name, 0 if kind == "INTEGER" else b"" if kind == "BLOB" else "x")
    names = ", ".join(given)
    marks = ", ".join("?" for _ in given)
    execute = connection.execute  # type: ignore[attr-defined]
    execute("INSERT OR IGNORE INTO message VALUES (?, ?)", (number + 1, f"m{number}"))
    execute("INSERT OR IGNORE INTO terms VALUES ('x', '')")
    execute(f"INSERT INTO outgoing ({names}) VALUES ({marks})", tuple(given.values()))
