"""What every test may ask for. Markers are registered in pyproject.toml, in one place."""

import functools
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests import parts

# Spark starts its Python workers by name; left alone it would take the system's python3, which
# lacks the packages when pytest is run straight from the environment and not through make.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# No deadline: a busy machine is not a bug. A failure prints the blob that replays it. A build
# server draws the same examples each time, so that a red build is red again on the next try.
settings.register_profile("user", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "user")

_spark_lacks = functools.cache(parts.spark_lacks)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of sample messages of other handlers; read in place, never copied."""
    folder = parts.find_corpus(os.environ, parts.ROOT)
    if folder is None:
        parts.missing("no corpus at ../shared/corpus; set ONCEWIRE_CORPUS to its folder")
    return folder


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is not None:
        lacks = _spark_lacks()
        if lacks is not None:
            parts.missing(lacks)
