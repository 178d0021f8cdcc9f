"""The demo that goes on: its console, and what is broken in it by the word of somebody."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from oncewire.errors import NotHere
from oncewire.lab.demo.play import CHAOS, break_more
from tests.waiting import wait_until

pytestmark = pytest.mark.process


def test_a_demo_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with pytest.raises(NotHere):
        break_more(folder)
    command = [sys.executable, "-m", "oncewire", "demo", str(folder)]
    options = ["--keep", "--fair", "--no-kill", "--no-spark", "--messages", "12"]
    demo = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        link = next(line.split()[1] for line in demo.stdout if line.startswith("console"))
        url, _, secret = link.partition("/console/sign-in#")
        with httpx.Client(base_url=url, follow_redirects=True) as client:
            page = client.post("/console/sign-in", data={"link": secret})
            assert "Break something" in page.text
            said = ""
            while "It goes on" not in said:
                said += next(demo.stdout)
            assert "12 orders were delivered once" in said
            large = client.get("/console/message", params={"id": "PO-0005@buyer"})
            assert "801 kB" in large.text
            told = subprocess.run([*command, "--chaos"], check=True, capture_output=True, text=True)
            assert "breaks something" in told.stdout
            wait_until(lambda: not (folder / CHAOS).exists())
            wait_until(lambda: "the way to seller, is silent" in client.get("/console/").text)
            # What it was cut off from comes once the network is back.
            wait_until(lambda: "Nothing needs you" in client.get("/console/").text)
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) in (0, 130)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
