"""What every test may ask for. Markers are registered in pyproject.toml, in one place."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import sys
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import java_archive, needs, parts
from tests.examples import examples
from tests.seconds import Seconds
from tests.workers import Scheduler, arrange, in_spark_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.postgres import Server

# Spark starts its Python workers by name; left alone it would take the system's python3, which
# lacks the packages when pytest is run straight from the environment and not through make.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
java_archive.use(os.environ)

# A test says itself how wide its terminal is; a shell, or whoever starts workers, may have said so.
for _variable in ("COLUMNS", "LINES"):
    os.environ.pop(_variable, None)

# No deadline, and nobody is too slow: a busy machine is not a bug. A failure prints the blob that
# replays it. A build server draws the same examples each time, so that a red build is red again on
# the next try.
settings.register_profile(
    "user",
    deadline=None,
    print_blob=True,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("user"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "user")


@functools.cache
def _spark_lacks() -> str | None:
    from oncewire.entry.cli.lake import spark_lacks

    lacking = spark_lacks()
    return None if lacking is None else str(lacking)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of sample messages of other handlers; read in place, never copied."""
    folder = parts.find_corpus(os.environ, parts.ROOT)
    if folder is None:
        parts.missing("no corpus at ../shared/corpus; set ONCEWIRE_CORPUS to its folder")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a run, quick to start and quiet."""
    from oncewire.pipeline.session import BRIEF, open_session

    session = open_session("oncewire-tests", master="local[2]", config=BRIEF)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The one PostgreSQL server of a run."""
    from tests.postgres import Server

    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def empty_stores() -> Iterator[None]:
    """New stores in this process are copies of one that was migrated."""
    from oncewire.store.sqlite import store
    from tests.store.empty_store import migrate_or_copy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "migrate", migrate_or_copy)
        yield


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seconds())
    config.pluginmanager.register(needs.Watch())
    config.pluginmanager.register(needs.Chosen())
    config.pluginmanager.register(Settled())
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(Sharing())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # First of all, because `-m` looks at the markers.
    needs.mark(items)


class Settled:
    """Keeps the garbage collector from looking again and again at what is there for the whole run.

    Half a million objects are made in the collecting of tests, and none of them goes: a quarter of
    its time went into finding that out, and every later look began with them.
    """

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        # Whoever only hands tests out to workers collects none.
        if not session.config.pluginmanager.hasplugin("dsession"):
            gc.disable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        gc.freeze()
        gc.enable()

    def pytest_unconfigure(self) -> None:
        gc.unfreeze()


class Sharing:
    """Shares tests out among workers, where there are several."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        config.option.loadscopereorder = False
        return Scheduler(config, log)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Half of what a worker says of a good test is its words for `-k`, which nobody reads."""
        data = yield
        if data is not None and isinstance(report, pytest.TestReport) and report.passed:
            data["keywords"] = {}
        return data

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if hasattr(config, "workerinput"):
            arrange(items)


async def _bounded(work: Coroutine[Any, Any, None], seconds: float) -> None:
    async with asyncio.timeout(seconds) as bound:
        await work
    if bound.expired():
        raise TimeoutError("what it waited for went on when it was cancelled")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own, and a bound: a hang is a failure."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    marker = pyfuncitem.get_closest_marker("within")
    asyncio.run(_bounded(test, marker.args[0] if marker is not None else 120.0))
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is not None:
        lacks = _spark_lacks()
        if lacks is not None:
            parts.missing(lacks)
        if "spark" in getattr(item, "fixturenames", ()) and not in_spark_group(item.nodeid):
            pytest.fail("would start a second Spark: name its file in tests/workers.py")
