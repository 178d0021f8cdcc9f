"""A document is one message of the ledger, beside its parts; a trial is none at all."""

from collections import Counter
from pathlib import Path

import pytest

from oncewire.journal.check import check_journal
from oncewire.journal.row import Row
from oncewire.lab.sample_year.generate import PARTS, rows_of_year
from oncewire.lab.sample_year.plan import make_plan
from oncewire.message.envelope import TRIAL_MARK
from tests.pipeline.books import make_stores
from tests.pipeline.published import read_ledger, read_service

DOCUMENTS = 12


def journals() -> dict[str, list[Row]]:
    """A stream of documents, between two nodes, and a trial beside it."""
    plan = make_plan(50 * DOCUMENTS, 4, 20)
    (stream, *_) = (stream for stream in plan.streams if stream.split)
    rows = [
        row
        for row in rows_of_year(plan, [stream.index])
        if row.node in (stream.sender.name, stream.receiver.name)
    ]
    like = next(row.message_id for row in rows if row.kind == "submitted")
    nodes: dict[str, list[Row]] = {}
    for row in rows:
        nodes.setdefault(row.node, []).append(row)
    trial = f"{TRIAL_MARK}1@{stream.sender.name}"
    for own in nodes.values():
        tried = [row for row in own if row.message_id == like]
        plain = [row._replace(message_id=trial, seq=len(own) + 1 + place, detail=None)
                 for place, row in enumerate(tried)]  # fmt: skip
        own += [row for row in plain if row.kind in ("submitted", "joined")]
    return nodes


def test_the_checker_counts_documents_and_says_how_many_parts_they_had() -> None:
    nodes = journals()
    report = check_journal([row for rows in nodes.values() for row in rows], healed=False)
    assert (report.messages, report.parts) == (DOCUMENTS, DOCUMENTS * PARTS)
    assert sum(report.outcomes.values()) == sum(report.extents.values()) == DOCUMENTS


@pytest.mark.spark
def test_the_ledger_has_a_verdict_for_a_document_and_one_for_each_part(
    spark, tmp_path: Path
) -> None:
    from oncewire.pipeline import jobs
    from oncewire.pipeline.judging.check import judge_lake
    from oncewire.pipeline.lake.lake import Lake

    nodes = journals()
    lake = Lake(tmp_path / "lake")
    done = jobs.run(spark, lake, make_stores(tmp_path / "stores", nodes))
    assert done.messages == sum(done.verdicts.values()) == DOCUMENTS
    ledger = [row.asDict() for row in read_ledger(spark, lake, lake.current()).collect()]
    assert not [row for row in ledger if row["message_id"].startswith(TRIAL_MARK)]
    documents = [row for row in ledger if row["is_document"]]
    parts = [row for row in ledger if row["part_of"]]
    assert len(ledger) == len(documents) + len(parts)
    assert {row["verdict"] for row in documents} <= {"delivered", "unknown", "not_delivered"}
    assert Counter(row["part_of"] for row in parts) == {
        row["message_id"]: PARTS for row in documents
    }
    delivered = [row for row in documents if row["verdict"] == "delivered"]
    assert delivered
    assert all(row["from_peer"] and row["confirmed_count"] == 1 for row in delivered)

    service = [row.asDict() for row in read_service(spark, lake, lake.current()).collect()]
    out, into = (
        [row for row in service if row["direction"] == direction] for direction in ("out", "in")
    )
    assert sum(row["messages"] for row in out) == DOCUMENTS
    assert sum(row["delivered_count"] for row in out) == len(delivered)
    assert sum(row["messages"] for row in into) == len(delivered)
    assert sum(row["resends"] for row in out) == sum(row["resends"] for row in parts)

    found = judge_lake(spark, lake)
    assert (found.messages, found.parts) == (DOCUMENTS, DOCUMENTS * PARTS)
    assert not found.unchained
