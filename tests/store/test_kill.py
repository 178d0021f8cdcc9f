"""A process that writes is killed with SIGKILL; what it reported durable is there afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncewire.store.sqlite.store import SqliteStore
from tests.parts import ROOT
from tests.store.samples import everything

SEED = 20000818
ROUNDS = 8

WRITER = """
import os
import sys
from pathlib import Path
from oncewire.store.sqlite.store import SqliteStore
from tests.store.samples import add, prepare, received, row, sent

def say(word, number):
    # In one piece: the kernel takes it whole or not at all, whenever the process dies.
    os.write(1, f"{word} {number}\\n".encode())

store = SqliteStore(Path(sys.argv[1]), node="node")
prepare(store)
with store.reader() as reader:
    number = reader.last_seq() // 6
while True:
    for place in "abc":
        with store.transition() as transaction:
            name = f"{number}{place}"
            add(transaction, sent(name))
            transaction.add_incoming(received(name))
            transaction.journal([row("submitted", name), row("received", name)])
        if place == "b":
            say("begun", number)
    store.commit()
    say("durable", number)
    number += 1
"""


def _killed(path: Path, chance: random.Random) -> tuple[int, int]:
    """Run the writer and kill it; the last group it reported durable, and the last it began."""
    durable = begun = -1
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = chance.randrange(2, 12)
    for line in process.stdout:
        word, number = line.split()
        durable, begun = (int(number), begun) if word == "durable" else (durable, int(number))
        lines -= 1
        if lines == 0:
            time.sleep(chance.random() * 0.003)
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return durable, begun


@pytest.mark.process
@pytest.mark.requirement("STO-1", "STO-3")
def test_a_killed_writer_loses_nothing_it_reported(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    path = tmp_path / "store.db"
    reported = -1
    for _ in range(ROUNDS):
        durable, begun = _killed(path, chance)
        reported = max(reported, durable)
        # The kernel freed the lock with the process: nothing is to be cleaned up by hand.
        store = SqliteStore(path, node="node")
        view = everything(store)
        names = [stored.outgoing.message_id for stored in reversed(view["outgoing"])]
        groups = len(names) // 3
        # Whole groups, and at most the one that was being committed beyond the reported ones.
        assert names == [f"{number}{place}" for number in range(groups) for place in "abc"]
        assert reported + 1 <= groups <= max(reported, begun) + 1
        assert [stored.incoming.message_id for stored in reversed(view["incoming"])] == names
        assert view["last"] == len(view["journal"]) == 6 * groups
        store.close()
