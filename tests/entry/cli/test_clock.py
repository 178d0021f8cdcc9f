"""A clock that was set, as an operator sees it and decides about it."""

from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.doctor import checkup
from oncewire.entry.doctor.checkup import Grade
from oncewire.entry.party.settings import load
from oncewire.entry.running.serving import make_engine
from oncewire.handler.runtime import retention
from oncewire.handler.world import RealWorld
from oncewire.message.instant import HOUR
from tests.entry.terminal import run, run_json

_now = RealWorld.now


@pytest.fixture
def set_clock(pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Acme has sent something; then its machine's clock was set by an hour, and it noticed."""
    order = tmp_path / "order"
    order.write_text("x")
    run_json("send", order, "--to", "globex")
    monkeypatch.setattr(RealWorld, "now", lambda world: _now(world) + HOUR)
    engine = make_engine(load(pair / "acme", environ={}).settings)
    retention.watch(engine.context)
    engine.commit()
    engine.context.store.close()
    return pair / "acme"


def test_a_clock_in_doubt_is_shown_with_what_to_do(set_clock: Path) -> None:
    assert "the clock was set by +3600 s" in run_json("status")["clock"]
    listed = run("incidents", exit_code=output.WRONG).stdout
    assert "the clock was set by +3600 s" in listed
    assert "oncewire clock accept" in listed
    settings = load(set_clock, environ={}).settings
    [finding] = checkup.check_clock(settings, RealWorld().now())
    assert finding.grade is Grade.BAD
    assert "oncewire clock accept" in finding.fix


def test_accepting_it_settles_the_matter(set_clock: Path) -> None:
    assert "Accepted" in run("clock", "accept").stdout
    assert "clock" not in run_json("status")
    assert run_json("incidents")["incidents"] == []
    again = run("clock", "accept", exit_code=None)
    assert "not in doubt" in again.stderr
    settings = load(set_clock, environ={}).settings
    [finding] = checkup.check_clock(settings, RealWorld().now())
    assert finding.grade is Grade.GOOD


def test_what_is_sent_meanwhile_does_not_pass_for_an_accepted_time(
    set_clock: Path, tmp_path: Path
) -> None:
    order = tmp_path / "another"
    order.write_text("y")
    run_json("send", order, "--to", "globex")
    engine = make_engine(load(set_clock, environ={}).settings)
    assert engine.context.in_doubt
    assert engine.context.now() < RealWorld().now() - HOUR // 2
    engine.context.store.close()
