"""A driver of its own: streams stores into a lake, in a process that tests may kill."""

import argparse
import os
from pathlib import Path

from oncewire.pipeline import jobs
from oncewire.pipeline.lake import version
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import BRIEF, open_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lake", type=Path)
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--rows", type=int, default=500)
    chosen = parser.parse_args()
    # Spark's workers leave the process group, and could not find the driver's otherwise.
    os.environ[version.GROUP_VARIABLE] = str(os.getpgrp())
    spark = open_session("oncewire-stream-driver", master="local[2]", config=BRIEF)
    done = jobs.stream(spark, Lake(chosen.lake), chosen.stores, rows_per_batch=chosen.rows)
    print("done", done.version, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
