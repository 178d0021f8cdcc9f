"""Advice for agreements: by simulated partners whose loss and latency are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_values
from typer.testing import CliRunner

from oncewire.agreement.check.dangers import check
from oncewire.lab.simulation.plan import Options, plan_of
from oncewire.lab.simulation.world import World
from oncewire.message.instant import MINUTE, SECOND
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.columns import JOURNAL, nullable
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.reports.advise import (
    Advice,
    Measured,
    advise,
    expected_wait,
    measure,
    render,
)
from oncewire.protocol.terms import FlowMode, Terms
from tests.entry.terminal import command_line
from tests.handler.network import agreement_of, agreement_text
from tests.pipeline.books import make_stores

CALM = {"duplicate": 0, "reorder": 0, "corrupt": 0, "crash": 0, "partition": 0, "disk_full": 0}
ORDERS = 250


def rows_of_world(**options: Any) -> list:
    usual = {"messages": ORDERS, "flow": "unrestricted", "profile": "ebms2", **CALM}
    world = World(plan_of(Options(**(usual | options)), 3))
    result = world.run()
    assert not result.violations
    return world.rows()


def advice_of(spark, rows: list) -> Advice:
    """The advice for the buyer's agreement with the seller."""
    journal = spark.createDataFrame([tuple(row) for row in rows], nullable(JOURNAL))
    found = measure(spark, journal, len(rows), partner="urn:sim:seller")
    assert [each.node for each in found] == ["buyer"]
    return advise(found[0])


def followed(advice: Advice) -> dict[str, Any]:
    names = ("timeout", "retry_interval", "retries")
    return {name: getattr(advice.terms, name) for name in names}


def test_less_waiting_where_today_waits_too_long(spark) -> None:
    """A lossy partner that answers at once, and an agreement that waits a minute."""
    today = {"loss": 0.15, "timeout": MINUTE, "retry_interval": MINUTE, "retries": 3}
    advice = advice_of(spark, rows_of_world(**today))
    measured = advice.measured
    # Both ways lose 15 of 100: 28 of 100 attempts go unanswered.
    assert 0.2 < measured.loss < 0.36
    assert measured.round_trip_p99 < SECOND
    assert not measured.too_short
    terms = advice.terms
    assert measured.round_trip_p99 < terms.timeout < MINUTE
    assert terms.timeout <= terms.retry_interval < MINUTE
    assert measured.loss ** (terms.retries + 1) < 1e-6
    assert terms.timeout + terms.retries * terms.retry_interval >= 4 * MINUTE - SECOND
    assert terms.longest_retry <= terms.persist_duration

    before, expected = advice.waits
    after = advice_of(spark, rows_of_world(**today | followed(advice))).measured
    assert after.since_first < 0.7 * before
    assert 0.6 * expected < after.since_first < 1.5 * expected
    assert after.answered >= ORDERS


def test_more_arrive_with_their_first_attempt_where_today_is_too_impatient(spark) -> None:
    """A partner that loses nothing and takes up to 40 seconds, and one that waits for two."""
    today = {"loss": 0, "reorder": 1.0, "timeout": 2 * SECOND, "retry_interval": 2 * SECOND,
             "retries": 30}  # fmt: skip
    advice = advice_of(spark, rows_of_world(**today))
    measured = advice.measured
    assert measured.too_short
    assert measured.duplicates == measured.resends_seen > 50
    assert advice.terms.timeout > measured.since_first_p99 > 20 * SECOND
    assert "arrived as copies" in advice.values[0].reason
    after = advice_of(spark, rows_of_world(**today | followed(advice))).measured
    assert measured.first_time < 0.6 * measured.messages
    assert after.first_time > 0.97 * after.messages
    assert after.duplicates < 0.05 * measured.duplicates


# --- the values, from what is measured --------------------------------------------------------


def seen(**more: Any) -> Measured:
    usual = Measured(
        "acme", "urn:globex", Terms(timeout=MINUTE, retry_interval=MINUTE, retries=3),
        messages=1_000, attempts=1_000, answered=1_000, first_time=1_000, resends_seen=0,
        duplicates=0, round_trip=SECOND, round_trip_p99=4 * SECOND,
        since_first_p99=4 * SECOND, since_first=SECOND, waited_p95=0, per_minute=60,
    )  # fmt: skip
    return replace(usual, **more)


def test_a_wait_is_longer_than_99_of_100_answers_and_never_longer_than_today() -> None:
    assert advise(seen()).terms.timeout == 6 * SECOND
    slow = advise(seen(round_trip_p99=50 * SECOND))
    assert slow.terms.timeout == MINUTE
    assert slow.terms.retry_interval == MINUTE
    assert "no copies show" in slow.values[0].reason


def test_copies_alone_prove_nothing_where_answers_are_quick() -> None:
    """Acknowledgements that get lost make copies too."""
    lossy = seen(resends_seen=100, duplicates=100, attempts=1_100)
    assert not lossy.too_short
    assert lossy.too_short is not replace(lossy, round_trip_p99=40 * SECOND).too_short


@pytest.mark.parametrize("unanswered", [0, 10, 100, 500, 4_000])
def test_all_attempts_are_lost_at_most_once_in_a_million(unanswered: int) -> None:
    measured = seen(attempts=1_000 + unanswered)
    terms = advise(measured).terms
    assert measured.loss ** (terms.retries + 1) < 1e-6
    assert terms.longest_retry <= terms.persist_duration


def test_resends_that_do_not_fit_into_persist_duration_are_not_advised() -> None:
    short = Terms(timeout=MINUTE, retry_interval=MINUTE, retries=3, persist_duration=5 * MINUTE)
    advice = advise(seen(terms=short, attempts=9_000, round_trip_p99=30 * SECOND))
    assert advice.terms.longest_retry <= 5 * MINUTE
    assert "do not fit into persist_duration" in advice.values[2].reason


def test_an_outage_is_outlasted_as_today() -> None:
    advice = advise(seen())
    today, then = advice.measured.terms, advice.terms
    assert then.longest_retry >= today.longest_retry
    assert then.retry_interval <= today.retry_interval


def test_a_window_grows_only_where_messages_wait_for_it() -> None:
    terms = Terms(
        flow=FlowMode.WINDOW, window=4, timeout=MINUTE, retry_interval=MINUTE, numbered=True
    )
    calm = advise(seen(terms=terms))
    assert (calm.values[3].key, calm.terms.window) == ("flow.window", 4)
    busy = advise(seen(terms=terms, waited_p95=MINUTE, per_minute=600))
    assert 40 <= busy.terms.window <= terms.numbers.size // 2
    assert busy.values[3].changes
    assert "flow.window" not in [value.key for value in advise(seen()).values]


def test_of_few_messages_nothing_is_advised() -> None:
    assert advise(seen(messages=12)).problem.startswith("only 12 messages")
    assert not advise(seen(messages=12)).values
    assert "no message was ever" in advise(seen(round_trip_p99=None)).problem


def test_losses_cost_the_waits_that_follow_them() -> None:
    measured = seen(attempts=1_250)
    terms = Terms(timeout=10 * SECOND, retry_interval=20 * SECOND, retries=50)
    loss = measured.loss
    by_hand = SECOND + loss * 10 * SECOND + loss**2 / (1 - loss) * 20 * SECOND
    assert expected_wait(measured, terms) == pytest.approx(by_hand, rel=1e-3)


def test_check_has_nothing_against_what_is_advised() -> None:
    """Agreements with today's values, and with those that follow from many partners."""
    today = '[delivery]\ntimeout = "PT1M"\nretry_interval = "PT1M"\nretries = 3\n'
    before = agreement_of(agreement_text("alpha", "beta", "ebms2", today))
    known = set(check(before))
    for attempts in (1_000, 1_300, 3_000):
        for slowest in (SECOND, 20 * SECOND, 10 * MINUTE):
            terms = before.sending.terms
            found = advise(seen(terms=terms, attempts=attempts, round_trip_p99=slowest)).terms
            values = {
                name: getattr(found, name) for name in ("timeout", "retry_interval", "retries")
            }
            tuned = replace(
                before, sending=replace(before.sending, terms=with_values(terms, **values))
            )
            assert set(check(tuned)) <= known
            # The lines that are printed say the same.
            text = advise(seen(terms=terms, attempts=attempts, round_trip_p99=slowest)).as_toml()
            read = agreement_of(agreement_text("alpha", "beta", "ebms2", text)).sending.terms
            assert {name: getattr(read, name) for name in values} == values


def test_the_page_has_a_picture_and_every_reason_and_escapes_names() -> None:
    advice = advise(seen(partner="urn:<b>globex", spread=((59, 10), (60, 980), (66, 10))))
    page = render([advice, advise(seen(messages=3))])
    assert page.count("<svg") == 1
    assert "urn:&lt;b&gt;globex" in page
    assert "<b>globex" not in page
    for value in advice.values:
        assert value.advised in page
    for mark in ("today 60 s", "advised 6 s", "99 of 100 4 s"):
        assert mark in page
    assert "only 3 messages" in page


def test_the_command(spark, tmp_path: Path) -> None:
    nodes: dict[str, list] = {}
    for row in rows_of_world(loss=0.1, timeout=MINUTE, retry_interval=MINUTE, retries=3):
        nodes.setdefault(row.node, []).append(row)
    lake = Lake(tmp_path / "lake")
    jobs.run(spark, lake, make_stores(tmp_path / "stores", nodes), ended=True)
    party, page = tmp_path / "buyer", tmp_path / "advice.html"
    made = CliRunner().invoke(command_line(), ["init", str(party), "--insecure"])
    assert made.exit_code == 0, made.output
    # By its own agreement ids are forgotten sooner than the advised resends end.
    short = '[delivery]\npersist_duration = "PT2M"\ntimeout = "PT5S"\nretry_interval = "PT5S"\n'
    text = agreement_text("buyer", "seller", "ebms2", short).replace("urn:test:", "urn:sim:")
    (party / "agreements").mkdir(exist_ok=True)
    (party / "agreements" / "seller.toml").write_text(text, encoding="utf-8")
    words = ["advise", "--lake", str(tmp_path / "lake"), "-o", str(page), "--json"]
    answer = CliRunner().invoke(command_line(), ["pipeline", *words, "--config", str(party)])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["toml"]["urn:sim:seller"].startswith('[delivery]\ntimeout = "PT1S"\n')
    values = [value for value in told["values"] if value["partner"] == "urn:sim:seller"]
    assert {value["key"] for value in values} == {
        "delivery.timeout", "delivery.retry_interval", "delivery.retries",
    }  # fmt: skip
    assert all(value["reason"].endswith(".") for value in values)
    assert "<svg" in page.read_text(encoding="utf-8")
    assert [(found["severity"], found["key"]) for found in told["findings"]] == [
        ("danger", "delivery.persist_duration")
    ]
