"""How long pages of the console take among few messages and among many: `python -m bench.console`.

A party gets a store with so many messages, its handler is started, and a browser without a screen
opens pages: from the click to the first paint of each, by the browser's own clock. Loopback only.

With `--steps` no browser is opened: the steps that SQLite takes for the questions of each page are
counted among 20,000 messages and among many, and fail where they grow with the store.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bench.find import made, name_of, order_of
from oncewire.entry.cli.config import link_to
from oncewire.entry.party.folder import KeyKind, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from tests.entry.console.visits import (
    QUESTIONS,
    SEED_MESSAGES,
    is_bounded,
    large_store,
    steps_of,
)
from tests.ports import free_port

NAME = "buyer"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def run(browser: Browser, folder: Path, count: int, repeats: int) -> None:
    """Measure the pages of a party with so many messages."""
    now, port = RealWorld().now(), free_port()
    for name in (NAME, "seller"):
        make_party(folder / name, name, now=now, port=free_port(), key_kind=KeyKind.EC)
    settings = load(folder / NAME, environ={}, flags={"admin.port": port}).settings
    add_partner(settings, read_card(folder / "seller"), PartnerOptions())
    path = settings.path(settings.store.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    made(path, count).close()
    command = [sys.executable, "-m", "oncewire"]
    place = ["-c", str(folder / NAME)]
    serving = subprocess.Popen(
        [*command, "serve", "--json", *place, "--set", f"admin.port={port}"],
        stdout=subprocess.PIPE,
    )
    try:
        assert serving.stdout is not None
        serving.stdout.readline()
        (folder / "order.xml").write_text("<order/>")
        send = ["send", str(folder / "order.xml"), "--to", "seller", *place]
        named = ["--message-id", "order-1@buyer"]
        subprocess.run([*command, *send, *named], check=True, capture_output=True)
        page = browser.new_page()
        page.goto(link_to(settings, [], "bench"))
        page.wait_for_url("**/console/")
        home = page.url
        pages = {
            "now": "",
            "messages": "messages",
            "search by order number": f"messages?q={order_of(count // 2)}",
            "search by part of an id": f"messages?q={name_of(count // 2)[4:14]}",
            "one message": "message?id=order-1@buyer",
            "channels": "channels",
        }
        for name, where in pages.items():
            took = []
            for _ in range(repeats):
                page.goto(home + where)
                # The browser paints when it is ready.
                while (painted := page.evaluate(PAINTED)) is None:
                    page.wait_for_timeout(20)
                took.append(float(painted))
            line = {"page": name, "messages": count, "ms": round(statistics.median(took), 1)}
            print(json.dumps(line | {"slowest_ms": round(max(took), 1)}), flush=True)
        page.close()
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(60)


def compare_steps(count: int) -> int:
    """Count what pages visit in a small store and in a large one; returns how many grew."""
    found: dict[str, list[int]] = {page: [] for page in QUESTIONS}
    for times in (10, count // SEED_MESSAGES):
        with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
            store = large_store(Path(folder) / "store.db", times)
            for page, steps in found.items():
                steps.append(steps_of(store, page, times))
            store.close()
    grown = 0
    for page, (few, many) in found.items():
        bounded = is_bounded(few, many)
        grown += not bounded
        line = {"page": page, "messages": count, "steps": many, "steps_of_20000": few}
        print(json.dumps(line | {"bounded": bounded}), flush=True)
    return grown


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args(arguments)
    if options.steps:
        return compare_steps(options.messages)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for count in (options.few, options.messages):
            with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
                run(browser, Path(name), count, options.repeats)
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
