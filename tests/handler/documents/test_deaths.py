"""kill -9 of either side in the middle of a document of two hundred parts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncewire.journal.check import check_journal
from oncewire.protocol.states import OutgoingState
from tests.handler.documents.test_served import PARTS, rows_of
from tests.handler.running import free_port, serving
from tests.handler.test_streams import LongContent, submission
from tests.parts import ROOT

PROCESS = """
import asyncio, sys
from pathlib import Path
from tests.handler.documents.test_deaths import serve
asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""

DOCUMENT = LongContent(4_000_000)

# A dead party takes as long as the machine wants to be up again; no part is given up for it.
TERMS = f"{PARTS}20000\n".replace("retries = 40", "retries = 100000")


async def serve(folder: Path, own: str, alpha: int, beta: int) -> None:
    """One party as a process of its own; alpha submits the document, and says what became of it."""
    ports = {"alpha": alpha, "beta": beta}
    partner = "beta" if own == "alpha" else "alpha"
    async with serving(folder, own, partner, ports, extra=TERMS) as handler:
        print("up", flush=True)
        if own == "alpha":
            sent = await handler.send(submission(DOCUMENT, message_id="doc@alpha"))
            state = None
            while state is None:
                state = await handler.wait(sent.message_id, 10)
            print(state.value, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


class Party:
    """A party that can be killed, and started again."""

    def __init__(self, folder: Path, own: str, ports: tuple[int, int]) -> None:
        self.arguments = [str(folder), own, *map(str, ports)]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.hear() == "up"

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.start()

    def end(self) -> None:
        try:
            self.process.communicate("\n", timeout=20)
        finally:
            self.process.kill()


def acknowledged(store: Path) -> int:
    return sum(row.kind == "acknowledged" for row in rows_of(store))


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize(
    "deaths", [4, pytest.param(50, marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_deaths_of_either_side_lose_nothing_and_repeat_nothing(tmp_path: Path, deaths: int) -> None:
    ports = (free_port(), free_port())
    beta, alpha = Party(tmp_path, "beta", ports), Party(tmp_path, "alpha", ports)
    try:
        for number in range(deaths):
            wanted = (number + 1) * 180 // (deaths + 1)
            until = time.monotonic() + 30
            while acknowledged(tmp_path / "alpha.db") < wanted and time.monotonic() < until:
                time.sleep(0.02)
            (alpha, beta)[number % 2].kill()
        assert alpha.hear() == OutgoingState.DELIVERED.value
    finally:
        alpha.end()
        beta.end()
    sent, received = rows_of(tmp_path / "alpha.db"), rows_of(tmp_path / "beta.db")
    assert sum(row.kind == "joined" for row in received) == 1
    settled: set[str | None] = set()
    for row in sent:
        assert row.kind != "sent" or row.message_id not in settled
        if row.kind == "acknowledged":
            settled.add(row.message_id)
    assert len(settled) == 201
    report = check_journal([*sent, *received], healed=False)
    assert report.clean, report
