"""The report's page: every section that people look for, in order, and nothing from elsewhere."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from oncewire.journal.check import Hole
from oncewire.pipeline.lake.version import NodeState, Version
from oncewire.pipeline.reports import report

SECTIONS = {
    "Outcomes": "delivered 90 (90.0%)",
    "Partners by day": "urn:globex (out), 2025-03-01: 90 messages, 3 in trouble",
    "Latency": "<td>2.0 min</td>",
    "Gaps in the numbers": "acme&gt;globex/1: 2 from 7, skipped",
    "Causes by frequency": "<td>lost</td><td class=number>1</td>",
    "Best effort": "50.0%",
    "What was judged, and what not": "2025-03-02 10:00 UTC",
    "Findings": "It was sent, and nobody has it.",
}
"""What the page must have, and what its section says of the facts below."""


def facts() -> report.Facts:
    hour = datetime(2025, 3, 1, 10, tzinfo=UTC)
    service = {
        "node": "acme", "direction": "out", "partner": "urn:globex", "hour": hour, "messages": 90,
        "size_bytes": 1, "delivered_count": 87, "not_delivered_count": 1, "unknown_count": 1,
        "in_flight_count": 1, "best_effort_count": 10, "arrived_count": 5,
        "with_findings_count": 1, "resends": 4, "duplicates_stopped": 2, "late_acks": 0,
        "latency_p50_us": 125e3, "latency_p95_us": 30e6, "latency_p99_us": 120e6,
    }  # fmt: skip
    lost = {
        "predicate": "S4", "kind": "lost", "message_id": "<m>@acme", "channel": None,
        "node": "acme", "sentence": "It was sent, and nobody has it.",
    }  # fmt: skip
    gap = {
        "node": "globex", "channel": "acme>globex/1", "epoch": 1, "side": "receiving",
        "first_missing": 7, "missing_count": 2, "after_message_id": "a", "before_message_id": "b",
        "state": "skipped",
    }  # fmt: skip
    way = {
        "sender": "acme", "receiver": "globex", "partner": "urn:globex", "channel": None,
        "terms_id": "t", "through_at": datetime(2025, 3, 2, 10, tzinfo=UTC),
        "clock": "acme: its own clock", "open_count": 4, "not_yet_count": 3, "in_doubt_count": 0,
    }  # fmt: skip
    state = NodeState(
        90, 5, "boot-1", holes=(Hole(5, 9, 1_740_000_000_000_000, 1_741_000_000_000_000),)
    )
    return report.Facts(
        Version(number=4, nodes={"acme": state}),
        {"delivered": 90, "unknown": 5, "lost": 5},
        [service],
        [lost],
        [gap],
        [way, {**way, "terms_id": "u"}],
        {"a": 1_740_100_000_000_000, "b": 1_740_200_000_000_000},
    )


def sections(page: str) -> dict[str, str]:
    return dict(re.findall(r"<section[^>]*><h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_says_what_the_tables_say(title: str) -> None:
    found = sections(report.render(facts(), "Ledger of lake"))
    assert list(found) == list(SECTIONS)
    assert SECTIONS[title] in found[title]


def test_the_verdict_is_one_sentence_and_says_what_was_not_judged() -> None:
    page = report.render(facts(), "Ledger of <lake>")
    assert "1 promises are broken in 100 messages. 6 messages are not judged yet." in page
    assert 'class="verdict bad"' in page
    assert "Ledger of &lt;lake&gt;" in page
    clean = report.render(replace(facts(), findings=[]), "Ledger")
    assert 'class="verdict good"' in clean


def test_ways_that_differ_in_their_terms_alone_are_one_row() -> None:
    judged = sections(report.render(facts(), "Ledger"))["What was judged, and what not"]
    assert judged.count("<tr>") == 2
    assert "<td class=number>6</td>" in judged


def test_gaps_and_holes_stand_on_a_line_of_time() -> None:
    gaps = sections(report.render(facts(), "Ledger"))["Gaps in the numbers"]
    assert gaps.count("<rect") == 2
    assert "acme: 5 rows are missing" in gaps
    assert "2025-02-19 21:20" in gaps


def test_the_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    page = report.render(facts(), "Ledger")
    for word in ("<script", "http:", "https:", "<link", "<img", "url(", "@import"):
        assert word not in page
    assert "@media print" in page
    assert 'name="viewport"' in page
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert not open_tags


def test_an_empty_lake_has_every_section_too() -> None:
    empty = report.Facts(Version(), {}, [], [], [], [], {})
    found = sections(report.render(empty, "Ledger"))
    assert list(found) == list(SECTIONS)
    assert all("None." in content for content in found.values())


def test_no_duration_is_rounded_away() -> None:
    told = [report.lasting(micros) for micros in (400, 58e3, 2.5e6, 90e6, 7_200e6)]
    assert told == ["0.4 ms", "58 ms", "2.5 s", "1.5 min", "2.0 h"]
