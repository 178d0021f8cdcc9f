"""A small sample of the load test: real processes, every kind of stranger, and two partners."""

from __future__ import annotations

import asyncio

import pytest

from bench import hostile


@pytest.mark.process
@pytest.mark.long
def test_partners_go_on_while_strangers_do_what_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "SETTLE", 0.5)
    found = asyncio.run(hostile.measure(seconds=1.0, count=80, seed=3))
    assert found["lost"] == 0
    for phase in ("beside_a_sink", "aimed_at_us"):
        said = found[phase]
        assert isinstance(said, dict)
        assert said["delivered"] == said["sent"]
    assert isinstance(found["rss_mb"], float)
    assert found["rss_mb"] < 300
    assert isinstance(found["disk_growth_mb"], float)
    assert found["disk_growth_mb"] < 20
