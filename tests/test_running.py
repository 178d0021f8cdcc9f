"""How the suite runs: what is marked, what runs together, what it says at the end."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports
from tests.conftest import _bounded
from tests.examples import examples
from tests.needs import asked_for, left_out
from tests.parts import ROOT
from tests.seconds import Seconds
from tests.workers import GROUPS, group_of, in_spark_group


def test_the_tests_of_a_file_stay_together() -> None:
    assert group_of("tests/store/test_sqlite.py::test_a[b::c/d]") == "tests/store/test_sqlite.py"
    assert group_of("tests/store/test_sqlite.py::Class::test") == "tests/store/test_sqlite.py"


def test_every_named_group_has_tests() -> None:
    for _, beginnings in GROUPS:
        for beginning in beginnings:
            assert (ROOT / beginning).exists(), beginning


def test_spark_is_in_groups_of_its_own() -> None:
    assert in_spark_group("tests/pipeline/test_ledger.py::test_x")
    assert not in_spark_group("tests/store/test_sqlite.py::test_x")


def test_seconds_are_added_up_by_folder() -> None:
    seconds = Seconds()
    for nodeid, when, duration in (
        ("tests/store/test_a.py::test_x", "setup", 0.5),
        ("tests/store/test_a.py::test_x", "call", 1.0),
        ("tests/entry/cli/test_b.py::test_y[a/b]", "call", 4.0),
        ("tests/test_c.py::test_z", "teardown", 0.25),
    ):
        seconds.pytest_runtest_logreport(
            pytest.TestReport(nodeid, (nodeid, 1, nodeid), {}, "passed", None, when, (), duration)  # type: ignore[arg-type]
        )
    assert [line.split() for line in seconds.lines()] == [
        ["4.0", "tests/entry/cli", "1", "tests"],
        ["1.5", "tests/store", "1", "tests"],
        ["0.2", "tests", "0", "tests"],
        ["5.8", "in", "all"],
    ]


def test_a_quick_run_shows_properties_fewer_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_EXAMPLES", "25")
    assert [examples(count) for count in (400, 60, 8)] == [100, 15, 5]
    monkeypatch.delenv("TEST_EXAMPLES")
    assert [examples(count) for count in (400, 60, 8)] == [400, 60, 8]


def test_no_port_is_lent_twice_or_to_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[set[int]] = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        lent.append({ports.free_port() for _ in range(50)})
    assert [len(one) for one in lent] == [50, 50]
    assert max(lent[0]) < min(lent[1])


QUICK = "not (soak or spark or process or long)"


@pytest.mark.parametrize(
    ("file", "text", "expression", "unread"),
    [
        ("tests/a/test_b.py", "pytestmark = pytest.mark.spark\n", QUICK, True),
        ("tests/a/test_b.py", "x = 1\npytestmark = [pytest.mark.a, pytest.mark.long]", QUICK, True),
        ("tests/a/test_b.py", "pytestmark = pytest.mark.spark\n", "not soak", False),
        ("tests/a/test_b.py", "pytestmark = pytest.mark.soak\n", "not soak", True),
        ("tests/a/test_b.py", "pytestmark = pytest.mark.spark\n", "not soak and not spark", False),
        ("tests/a/test_b.py", "pytestmark = pytest.mark.soak\n", "soak", False),
        ("tests/a/test_b.py", 'pytestmark = pytest.mark.requirement("A-1")\n', QUICK, False),
        ("tests/a/test_b.py", "@pytest.mark.spark\ndef test_c(): ...\n", QUICK, False),
        ("tests/a/test_b.py", 'def c():\n  """\npytestmark = pytest.mark.long', QUICK, False),
        ("tests/simulation/test_b.py", "", QUICK, True),
        ("tests/simulation/test_b.py", "", "not soak", False),
    ],
)
def test_a_file_of_which_nothing_is_wanted_is_not_loaded(
    file: str, text: str, expression: str, unread: bool
) -> None:
    assert left_out(file, text, expression) is unread


def test_cases_that_would_be_left_out_are_not_made() -> None:
    soak = [pytest.param(seed, marks=pytest.mark.soak) for seed in (3, 4)]
    assert asked_for([1, 2, *soak], {"soak", "spark"}) == [1, 2]
    assert asked_for([1, 2, *soak], {"spark"}) == [1, 2, *soak]
    # Without any case pytest would say that a test was skipped.
    assert asked_for(soak, {"soak"}) == soak[:1]


TESTS = """
import subprocess
import sys
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.fixture
def started():
    start()

@pytest.fixture(scope="session")
def nursery():
    start()

def test_quietly():
    pass

def test_unsaid():
    start()

def test_unsaid_in_a_fixture(started):
    pass

@pytest.mark.process
def test_said():
    start()

def test_brought(nursery):
    pass

def test_brought_again(nursery):
    pass

def test_lost(spark):
    pass
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over the tests above with this suite's conftest."""
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c",
         str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "tests.conftest", *words,
         str(folder)],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_who_starts_a_process_says_so(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    done = run(tmp_path, *words)
    lines = done.stdout.splitlines()
    # A fixture that says nothing is an error, and so is Spark where it would be a second one.
    assert lines[-1].startswith("1 failed, 4 passed, 2 errors"), done.stdout
    # The summary repeats each, cut to the terminal's width except on a build server.
    told = done.stdout.partition("short test summary")[0]
    assert told.count("mark it with @pytest.mark.process") == 2
    assert "name its file in tests/workers.py" in done.stdout
    # The seconds come before the counts, which a build server reads in the last line.
    assert any("seconds by folder" in line for line in lines[:-1])


@pytest.mark.process
def test_the_quick_ones_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    done = run(tmp_path, "-m", QUICK, "--co")
    chosen = {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}
    assert chosen == {"test_quietly", "test_unsaid", "test_unsaid_in_a_fixture"}


async def test_a_coroutine_that_takes_no_end_at_its_bound_is_a_failure() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError, match="went on"):
        await _bounded(stubborn(), 0.01)
