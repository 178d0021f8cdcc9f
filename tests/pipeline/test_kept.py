"""A lake that an earlier version wrote: it opens, and goes on with its stores."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

from oncewire.message.instant import MINUTE
from tests.entry.terminal import run_json
from tests.handler.network import START
from tests.store.kept_store import NAMES, Partners

KEPT = Path(__file__).with_name("kept") / "lake.tar.gz"
STORES = Path(__file__).parent.parent / "store" / "kept"
LEDGER = "SELECT message_id, outcome, verdict FROM ledger ORDER BY message_id"


def test_a_kept_lake_goes_on(spark: Any, tmp_path: Path) -> None:
    with tarfile.open(KEPT) as packed:
        packed.extractall(tmp_path, filter="data")
    for name in NAMES:
        content = gzip.decompress((STORES / f"{name}.db.gz").read_bytes())
        (tmp_path / f"{name}.db").write_bytes(content)
    before = ledger(tmp_path / "lake")
    assert len(before) == 29
    pair = Partners(tmp_path, time=START + 5 * MINUTE, ids=1_000)
    pair.order("ebms2", "after")
    pair.take()
    pair.close()
    taken_in = run(tmp_path, "lake")
    assert taken_in["version"] == 2
    made_anew = tmp_path / "anew"
    run(tmp_path, "anew")
    after = ledger(tmp_path / "lake")
    assert {row["message_id"] for row in after} > {row["message_id"] for row in before}
    assert after == ledger(made_anew)


def run(folder: Path, lake: str) -> dict[str, Any]:
    stores = [word for name in NAMES for word in ("--store", str(folder / f"{name}.db"))]
    return run_json("pipeline", "run", "--lake", folder / lake, *stores, exit_code=None)


def ledger(lake: Path) -> list[dict[str, Any]]:
    found = run_json("pipeline", "sql", LEDGER, "--lake", lake)
    return list(found["answer"])
