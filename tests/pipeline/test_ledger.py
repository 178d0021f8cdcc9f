"""The ledger that Spark computes is the fold of the journal, row for row, however it was cut."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncewire.errors import InvalidValue
from oncewire.journal.check import (
    channel_key,
    document_key,
    doubts,
    fold_channels,
    fold_documents,
    fold_ledger,
    message_key,
    survey,
)
from oncewire.journal.predicates.context import Context, Violation
from oncewire.journal.row import Row
from oncewire.lab.sample_year.plan import deals
from oncewire.pipeline import jobs
from oncewire.pipeline.judging import gold, refresh
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.judging.extent import Judging
from oncewire.pipeline.judging.ledger import FOLDED
from oncewire.pipeline.judging.refresh import SPAN_DAYS
from oncewire.pipeline.lake.columns import JOURNAL, OUTCOME, SEQUENCE_GAPS, arrow
from oncewire.pipeline.lake.lake import Days, Lake
from oncewire.pipeline.lake.tables import rows_of_batch
from oncewire.pipeline.lake.version import Version
from tests.pipeline.books import (
    PROMISES,
    Year,
    assert_hard_places,
    differences,
    make_stores,
    small_year,
    tables,
)
from tests.pipeline.published import read_ledger, read_service

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def judged(spark, year: Year) -> Year:
    """The year with its gold tables."""
    jobs.run(spark, year.lake)
    return year


def test_verify_finds_exactly_what_was_planted(spark, year: Year) -> None:
    found = judge_lake(spark, year.lake)
    violations = Counter((one.kind, one.message_id) for one in found.violations)
    assert violations == Counter(year.planted)
    assert {kind for kind, _ in year.planted} == PROMISES
    assert not found.quarantined
    assert found.rows == year.rows
    assert sum(found.outcomes.values()) == found.messages >= 12_000
    assert {"delivered", "not_delivered", "unknown", "in_flight"} <= set(found.outcomes)


def test_the_year_has_the_hard_places(spark, year: Year) -> None:
    assert_hard_places(spark, year.lake)


def test_the_ledger_finds_exactly_what_was_planted(spark, judged: Year) -> None:
    ledger = read_ledger(spark, judged.lake, judged.lake.current())
    told = ledger.where(f.col("findings").isNotNull()).select(f.explode("findings").alias("v"))
    found = Counter((row["kind"], row["message_id"]) for row in told.select("v.*").collect())
    assert found == Counter(judged.planted)
    verdicts = {row["message_id"]: row["verdict"] for row in ledger.collect()}
    for kind, message_id in judged.planted:
        assert verdicts[message_id] == kind
    kinds = {kind for kind, _ in judged.planted}
    assert sum(verdict in kinds for verdict in verdicts.values()) == len(judged.planted)


def test_the_ledger_is_the_fold_of_the_journal_row_for_row(spark, judged: Year) -> None:
    version = judged.lake.current()
    table = judged.lake.read(spark, version, JOURNAL, "journal").toArrow()
    rows = sorted(row for batch in table.to_batches() for row in rows_of_batch(batch))
    rows.sort(key=lambda row: (row.node, row.seq))
    # The same context, from the rows themselves instead of from the lake's small tables.
    found = survey(rows)
    context = Context.gather(found.rows, healed=False)
    for node in version.nodes:
        context.homes.setdefault(node, {node})
    doubts(context, found)
    context.through = {name: state.at for name, state in version.nodes.items()}
    # Every pair of policies that can stand together is among them (tests of the sample year).
    assert {deal.terms for deal in deals()} <= set(context.terms.values())

    expected = {}
    told: dict[str | None, list[Violation]] = {}
    for one in (
        *fold_channels(_grouped(rows, channel_key), context),
        *fold_documents(_grouped(rows, document_key), context),
    ):
        told.setdefault(one.message_id, []).append(one)
    for outcome, violations, extent, _, _ in fold_ledger(_grouped(rows, message_key), context):
        assert outcome is not None
        values = (*outcome, extent.value)
        every = [*violations, *told.get(outcome.message_id, [])]
        expected[outcome.message_id] = (values, sorted(map(tuple, every), key=repr))

    in_ledger = {}
    for row in read_ledger(spark, judged.lake, version).collect():
        values = tuple(_instant(row[name]) for name in (*OUTCOME.fieldNames(), "judgement"))
        violations = [tuple(one) for one in row["findings"] or ()]
        assert row["message_id"] not in in_ledger
        in_ledger[row["message_id"]] = (values, sorted(violations, key=repr))
    assert in_ledger.keys() == expected.keys()
    assert len(in_ledger) > 10_000
    different = {
        key: (one, expected[key]) for key, one in in_ledger.items() if one != expected[key]
    }
    assert not different, next(iter(different.items()))


def _grouped(rows: list[Row], key) -> list[Row]:
    return sorted((row for row in rows if key(row) is not None), key=key)


def _instant(value):
    """A timestamp back to the integer that the journal has."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone()
        return (moment - EPOCH) // timedelta(microseconds=1)
    return value


def test_most_messages_are_closed_and_their_day_is_their_last(spark, judged: Year) -> None:
    version = judged.lake.current()
    assert version.rows("ledger_closed") > 30 * version.rows("ledger_open")
    rows = judged.lake.read(spark, version, read_ledger(spark, judged.lake, version).schema,
                            "ledger_closed")  # fmt: skip
    wrong = rows.where(
        f.to_date(
            f.greatest(
                "submitted_at", "first_sent_at", "acknowledged_at", "failed_at", "received_at",
                "handed_over_at", "confirmed_at",
            )
        )
        != f.col("closed_on")
    )  # fmt: skip
    assert wrong.count() == 0


def test_a_quiet_year_is_few_directories_and_each_says_which_days_it_has(
    spark, judged: Year
) -> None:
    version = judged.lake.current()
    for table, column, most, least in (
        ("ledger_closed", "closed_on", 4, 50),
        ("partner_service", "hour", 366 // SPAN_DAYS + 2, 1),
    ):
        entries = version.tables[table]
        assert len(entries) <= most, table
        for entry in entries:
            rows = pq.read_table(judged.lake.root / entry.path, columns=[column])[column]
            days = {str(value)[:10] for value in rows.to_pylist()}
            assert Days.of_entry(entry) == (min(days), max(days))
            assert len(days) > least


def test_gaps_and_service_agree_with_the_ledger(spark, judged: Year) -> None:
    version = judged.lake.current()
    gaps = judged.lake.read(spark, version, SEQUENCE_GAPS, "sequence_gaps")
    sides = {(row["side"], row["state"]) for row in gaps.select("side", "state").collect()}
    assert ("sending", "never_given") in sides
    assert ("receiving", "skipped") in sides
    every = read_ledger(spark, judged.lake, version)
    ledger = every.where("part_of is null")
    service = read_service(spark, judged.lake, version)
    counted = service.groupBy("direction").agg(
        f.sum("messages").alias("messages"), f.sum("resends").alias("resends"),
        f.sum("duplicates_stopped").alias("duplicates"),
        f.sum("delivered_count").alias("delivered"),
    )  # fmt: skip
    both = {row["direction"]: row for row in counted.collect()}
    sent = ledger.where("submitted_at is not null")
    assert both["out"]["messages"] == sent.count()
    assert both["in"]["messages"] == ledger.where("received_at is not null").count()
    assert (
        both["out"]["resends"]
        == every.where("submitted_at is not null").agg(f.sum("resends")).collect()[0][0]
    )
    assert both["out"]["delivered"] == sent.where("outcome = 'delivered'").count()
    partners = {row["partner"] for row in service.select("partner").distinct().collect()}
    assert all(partner.startswith("urn:party:") for partner in partners)
    odd = service.where("latency_p50_us > latency_p95_us or latency_p95_us > latency_p99_us")
    assert odd.count() == 0


def test_late_rows_and_portions_make_no_difference(spark, tmp_path: Path) -> None:
    """One run over everything, against three: a year in halves, and one node much later.

    The late node's rows are about messages that were closed long ago.
    """
    _, nodes = small_year(300, 11)
    whole = Lake(tmp_path / "whole")
    jobs.run(spark, whole, make_stores(tmp_path / "all", nodes))

    late = max(nodes)
    parts = Lake(tmp_path / "parts")
    early = {node: rows for node, rows in nodes.items() if node != late}
    halves = {node: rows[: len(rows) // 2] for node, rows in early.items()}
    stores = make_stores(tmp_path / "some", halves)
    jobs.run(spark, parts, stores)
    make_stores(tmp_path / "some", {node: early[node][len(halves[node]) :] for node in early})
    jobs.run(spark, parts, stores)
    assert parts.current().rows("ledger_closed") > 100
    first = make_stores(tmp_path / "late", {late: nodes[late][:-40]})
    jobs.run(spark, parts, [*stores, *first])
    make_stores(tmp_path / "late", {late: nodes[late][-40:]})
    jobs.run(spark, parts, [*stores, *first])

    assert not differences(tables(spark, whole), tables(spark, parts))
    again = jobs.run(spark, parts, [*stores, *first])
    assert again.rows == 0
    assert not differences(tables(spark, whole), tables(spark, parts))


def test_rows_that_come_after_the_closing_open_it_again(spark, tmp_path: Path) -> None:
    """A second confirmation of a message that was closed months ago, in a lake behind a link."""
    (tmp_path / "a real, 100 % lake").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "a real, 100 % lake")
    plan, nodes = small_year(200, 7)
    node = max(nodes)
    rows = nodes[node]
    stores = make_stores(tmp_path / "stores", nodes)
    lake = Lake(tmp_path / "lake")
    before = jobs.run(spark, lake, stores)
    confirmed = next(row for row in rows if row.kind == "confirmed" and row.seq > 20)
    make_stores(
        tmp_path / "stores", {node: [confirmed._replace(at=rows[-1].at, boot=rows[-1].boot)]}
    )
    after = jobs.run(spark, lake, stores)
    assert after.rows == 1
    assert after.messages == before.messages
    changed = {kind: count - before.verdicts.get(kind, 0) for kind, count in after.verdicts.items()
               if count != before.verdicts.get(kind, 0)}  # fmt: skip
    assert changed == {"twice": 1, "delivered": -1}
    row = (
        read_ledger(spark, lake, lake.current())
        .where(f.col("message_id") == confirmed.message_id)
        .collect()
    )
    assert [one["verdict"] for one in row] == ["twice"]
    assert plan.messages == 200


def test_a_path_that_writers_of_delta_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="%25"):
        Lake(tmp_path / "100%25")


def test_days_on_which_nothing_changed_are_not_counted_again(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is open is judged again in every run, however old it is."""
    lake, nodes = Lake(tmp_path / "lake"), small_year(200, 7)[1]
    most = {node: rows[: len(rows) - 12] for node, rows in nodes.items()}
    jobs.run(spark, lake, make_stores(tmp_path / "stores", most))
    before = {row["message_id"]: row for row in ledger_rows(spark, lake)}
    counted: list[Collection[date] | None] = []
    real = refresh.partner_service

    def watched(rows: DataFrame, days: Collection[date] | None, tasks: int) -> DataFrame:
        counted.append(days)
        return real(rows, days, tasks)

    monkeypatch.setattr(refresh, "partner_service", watched)
    rest = {node: rows[len(most[node]) :] for node, rows in nodes.items()}
    jobs.run(spark, lake, make_stores(tmp_path / "stores", rest))
    changed = [
        each
        for row in ledger_rows(spark, lake)
        if {**row, "judgement": ""} != {**before.get(row["message_id"], {}), "judgement": ""}
        for each in (row, before.get(row["message_id"]))
    ]
    (days,) = counted
    assert days is not None
    assert set(days) <= days_of(changed)
    assert set(days) < days_of(before.values())


def ledger_rows(spark, lake: Lake) -> list[dict[str, Any]]:
    return [
        row.asDict(recursive=True) for row in read_ledger(spark, lake, lake.current()).collect()
    ]


def days_of(rows: Iterable[dict[str, Any] | None]) -> set[date]:
    """The days of some ledger rows, in UTC as their tables have them."""
    instants = ("submitted_at", "received_at")
    return {
        row[name].astimezone(UTC).date() for row in rows if row for name in instants if row[name]
    }


def test_a_message_that_moves_to_another_day_leaves_the_one_that_it_was_on(tmp_path: Path) -> None:
    shape = arrow(FOLDED)

    def of(*rows: tuple[str, int]) -> pa.RecordBatch:
        noon = [datetime(2025, 3, day, 12, tzinfo=UTC) for _, day in rows]
        values = {"message_id": [name for name, _ in rows], "submitted_at": noon}
        nothing = [None] * len(rows)
        columns = [pa.array(values.get(field.name, nothing), field.type) for field in shape]
        return pa.RecordBatch.from_arrays(columns, schema=shape)

    setting = gold.Setting(tmp_path, "v", Version(), frozenset())
    task = gold._Messages(setting, Judging(Context(healed=True), ended=False), "0")
    was = of(("moved", 1), ("same", 5))
    task._was = dict(zip(was["message_id"].to_pylist(), gold._counted(was), strict=True))
    task._note_days(of(("moved", 2), ("same", 5), ("new", 9)))
    assert task._made.days == {date(2025, 3, 1), date(2025, 3, 2), date(2025, 3, 9)}


def test_a_clock_that_jumps_is_not_believed(spark, tmp_path: Path) -> None:
    """A node whose last rows lie in the far future must not make everybody late."""
    _, nodes = small_year(200, 7)
    node = min(nodes)
    ahead = 10 * 365 * 86_400_000_000
    jumped = {
        **nodes,
        node: [
            row._replace(at=row.at + ahead) if number > len(nodes[node]) - 3 else row
            for number, row in enumerate(nodes[node])
        ],
    }
    plain, odd = Lake(tmp_path / "plain"), Lake(tmp_path / "odd")
    jobs.run(spark, plain, make_stores(tmp_path / "a", nodes))
    jobs.run(spark, odd, make_stores(tmp_path / "b", jumped))
    expected, found = tables(spark, plain), tables(spark, odd)
    assert found["violations"] == expected["violations"]
    assert len(found["journal"]) == len(expected["journal"])
    assert len(found["ledger"]) == len(expected["ledger"])
