"""The demo through a hub that is killed, and the trail that an order leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entry.terminal import run_json

MESSAGES = 8


@pytest.mark.process
@pytest.mark.long
@pytest.mark.requirement("HOP-8")
def test_a_killed_hub_loses_and_doubles_nothing_and_each_hop_can_be_seen(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ONCEWIRE_")}
    done = subprocess.run(
        [sys.executable, "-m", "oncewire", "demo", "here", "--hub", "--messages", str(MESSAGES),
         "--limit", "200", "--no-spark", "--json"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert done.returncode == 0, said
    assert said["hub_killed"] is True
    assert said["sent"] == said["delivered_once"] == said["orders_in_directory"] == MESSAGES
    assert (said["lost"], said["twice"], said["out_of_order"], said["violations"]) == (0, 0, 0, 0)
    folder = tmp_path / "here"
    others = ("--with", folder / "hub", "--with", folder / "seller")
    shown = run_json("show", "PO-0003", "-c", folder / "buyer", *others)
    assert [(hop["hop"], hop["node"]) for hop in shown["trail"]] == [(1, "buyer"), (2, "hub")]
    for hop in shown["trail"]:
        assert hop["sent"]
        assert hop["received"]
        assert hop["acknowledged"]
        assert hop["standing"].startswith("acknowledged by")
