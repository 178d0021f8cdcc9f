"""The summary beside a lake's pointer: what `serve` tells of the ledger without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncewire.errors import NotHere
from oncewire.pipeline.lake.summary import read_summary
from tests.pipeline.books import make_stores
from tests.pipeline.test_documents import journals

READS = (
    "import sys; from pathlib import Path; "
    "from oncewire.pipeline.lake.summary import read_summary; "
    "print(read_summary(Path(sys.argv[1]))['version']); "
    "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
)


@pytest.mark.process
def test_a_run_leaves_a_summary_that_needs_no_spark(spark, tmp_path: Path) -> None:
    from oncewire.pipeline import jobs
    from oncewire.pipeline.lake.lake import Lake

    lake = Lake(tmp_path / "lake")
    with pytest.raises(NotHere, match="no summary"):
        read_summary(lake.root)
    done = jobs.run(spark, lake, make_stores(tmp_path / "stores", journals()))
    told = read_summary(lake.root)
    assert (told["version"], told["messages"]) == (done.version, done.messages)
    assert told["verdicts"] == done.verdicts
    assert sum(told["counts"].values()) == told["violations"] == done.violations
    assert len(read_summary(lake.root, "findings")) == done.violations
    with pytest.raises(NotHere, match="findings"):
        read_summary(lake.root, "nothing")
    read = subprocess.run(
        [sys.executable, "-c", READS, str(lake.root)], capture_output=True, text=True, check=False
    )
    assert (read.stdout, read.stderr) == (f"{done.version}\n", "")
