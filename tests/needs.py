"""What a test needs: Spark, processes of its own, or long computing. `make quick` leaves those out.

Nobody has to remember the markers. A fixture that brings Spark or a process marks every test that
asks for it, a folder marks what is in it, and a test that starts a process without being marked
fails and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable

import pytest

FIXTURES = {
    "spark": "spark",
    "nursery": "process",
    "hatchery": "process",
    "played": "process",
}
"""The marker that a fixture brings."""

FOLDERS = {"tests/simulation/": "long"}
"""The marker that a folder brings."""

EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
"""What the interpreter tells its audit hooks when a process is started."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Give each test the markers of its fixtures and of its folder."""
    for item in items:
        for folder, name in FOLDERS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(name)
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in FIXTURES:
                item.add_marker(FIXTURES[fixture])


def says(item: pytest.Item) -> bool:
    """Whether a test says that it starts processes; Spark is one."""
    return any(item.get_closest_marker(name) is not None for name in ("process", "spark"))


class Watch:
    """Sees processes being started by tests that do not say so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS:
            self.started.append(f"{event} {arguments[0] if arguments else ''}".strip())

    def _judge(self, item: pytest.Item) -> None:
        if self.started and not says(item):
            pytest.fail(
                f"starts a process ({self.started[0]}): mark it with @pytest.mark.process, "
                "so that `make quick` leaves it out",
                pytrace=False,
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """What its own fixtures start is the test's."""
        self.started.clear()
        yield
        self._judge(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """And what it starts itself."""
        yield
        self._judge(item)
