"""A lake that an earlier version wrote: it opens, and goes on with its stores."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

from oncewire.message.instant import MINUTE
from oncewire.pipeline.lake.tables import OPEN
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
    before = ids_of(tmp_path / "lake")
    assert len(before) == 29
    for command in (("sql", LEDGER), ("report", "--output", tmp_path / "page.html"), ("compact",)):
        (refused,) = run_json("pipeline", *command, "--lake", tmp_path / "lake", exit_code=2)[
            "problems"
        ]
        assert "earlier release" in refused["problem"]
        assert "pipeline run" in refused["next"]
    judged = run_json("pipeline", "verify", "--ended", "--lake", tmp_path / "lake", exit_code=None)
    assert judged["messages"] > 0
    pair = Partners(tmp_path, time=START + 5 * MINUTE, ids=1_000)
    pair.order("ebms2", "after")
    pair.take()
    pair.close()
    taken_in = run(tmp_path, "lake")
    assert taken_in["version"] == 2
    made_anew = tmp_path / "anew"
    run(tmp_path, "anew")
    after = ledger(tmp_path / "lake")
    assert {row["message_id"] for row in after} > before
    assert after == ledger(made_anew)
    for table in OPEN.values():
        kept, anew = (
            DeltaTable(str(tmp_path / name / table.root)).to_pyarrow_table()
            for name in ("lake", "anew")
        )
        assert kept.schema.names == table.schema.fieldNames()
        if table.name == "judged":
            continue  # How far it was judged follows the time of reading.
        assert sorted(map(str, kept.to_pylist())) == sorted(map(str, anew.to_pylist())), table.name


def ids_of(lake: Path) -> set[str]:
    """The messages of the ledger, by the files that are there."""
    found = ds.dataset(lake / "gold" / "ledger" / "_data", format="parquet", ignore_prefixes=["."])
    return set(found.to_table(columns=["message_id"])["message_id"].to_pylist())


def run(folder: Path, lake: str) -> dict[str, Any]:
    stores = [word for name in NAMES for word in ("--store", str(folder / f"{name}.db"))]
    return run_json("pipeline", "run", "--lake", folder / lake, *stores, exit_code=None)


def ledger(lake: Path) -> list[dict[str, Any]]:
    found = run_json("pipeline", "sql", LEDGER, "--lake", lake)
    return list(found["answer"])
