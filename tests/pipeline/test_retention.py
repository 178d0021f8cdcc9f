"""What may be removed, as the handler counts it but from journals; and nothing is removed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from oncewire.journal.predicates.context import Context
from oncewire.message.instant import DAY, Instant
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.reports.retention import report_retention
from tests.pipeline.books import lake_of, make_stores, small_year

NODES = {
    node: [row for row in rows if row.kind != "confirmed" or row.seq % 5]
    for node, rows in small_year(200, 7)[1].items()
}
"""A year in which applications do not confirm all that they were given."""
END = max(rows[-1].at for rows in NODES.values())


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(spark, tmp_path_factory.mktemp("retention"), NODES)


def read(lake: Lake, table: str) -> list[dict[str, Any]]:
    return DeltaTable(str(lake.root / table)).to_pyarrow_table().to_pylist()


def micros(at: Any) -> Instant:
    return round(at.timestamp() * 1_000_000)


def test_a_message_is_kept_for_what_its_terms_say(spark: Any, lake: Lake) -> None:
    report_retention(spark, lake, END)
    terms = Context.gather([row for rows in NODES.values() for row in rows], healed=False).terms
    ledger = {row["message_id"]: row for row in read(lake, "gold/ledger")}
    known = {
        (row.node, row.message_id): row
        for rows in NODES.values()
        for row in rows
        if row.kind in ("submitted", "received", "forwarded", "joined")
    }
    found = read(lake, "gold/retention")
    assert {(row["node"], row["message_id"]) for row in found} == known.keys()
    for row in found:
        began = known[row["node"], row["message_id"]]
        at = began.at
        if row["direction"] == "out":
            sent = ledger[row["message_id"]]["first_sent_at"]
            at = at if sent is None else micros(sent)
        kept = terms[began.terms_id or ""]
        assert micros(row["keep_until_at"]) == at + kept.persist_duration + kept.keep
        assert row["removable"] == (row["waits_for"] is None)
        assert not row["removable"] or micros(row["keep_until_at"]) <= END
        assert micros(row["as_of_at"]) == END


def test_what_is_not_at_its_end_stays_however_late_it_is(spark: Any, lake: Lake) -> None:
    before = lake.current().rows("messages")
    said = report_retention(spark, lake, END + 3_650 * DAY)
    found, ledger = read(lake, "gold/retention"), read(lake, "gold/ledger")
    outcomes = {row["message_id"]: row for row in ledger}
    confirmed = {row["message_id"] for row in ledger if row["confirmed_count"]}
    reasons = Counter(row["waits_for"] for row in found)
    assert reasons["No application has confirmed it."] > 0
    assert "It is kept for as long as was agreed." not in reasons
    for row in found:
        of = outcomes[row["message_id"]]
        if row["direction"] == "in" and row["waits_for"] == "No application has confirmed it.":
            assert row["message_id"] not in confirmed
        if of["outcome"] == "delivered":
            assert row["removable"] or row["direction"] == "in"
        if row["direction"] == "out" and of["outcome"] == "in_flight":
            assert row["waits_for"] == "It has no outcome yet."
    gone = [row for row in found if row["removable"]]
    assert (said.removable, said.messages) == (len(gone), len(found))
    assert said.removable_bytes == sum(row["size_bytes"] or 0 for row in gone)
    assert lake.current().rows("messages") == before


def test_before_anything_was_agreed_to_end_nothing_may_go(spark: Any, lake: Lake) -> None:
    first = min(rows[0].at for rows in NODES.values())
    assert report_retention(spark, lake, first).removable == 0
    assert all(row["waits_for"] for row in read(lake, "gold/retention"))


def test_a_run_after_it_keeps_the_table(spark: Any, lake: Lake, tmp_path: Path) -> None:
    rows = report_retention(spark, lake, END).messages
    extra = {"another": [row._replace(node="another") for row in next(iter(NODES.values()))[:1]]}
    jobs.run(spark, lake, make_stores(tmp_path / "more", extra))
    assert len(read(lake, "gold/retention")) == rows
