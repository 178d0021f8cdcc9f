"""What a test needs: Spark, processes of its own, or long computing. `make quick` leaves those out.

Nobody has to remember the markers. A fixture that brings Spark or a process marks every test that
asks for it, a folder marks what is in it, and a test that starts a process without being marked
fails and says so.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = {
    "spark": "spark",
    "nursery": "process",
    "hatchery": "process",
    "played": "process",
    "postgres": "process",
}
"""The marker that a fixture brings."""

FOLDERS = {"tests/simulation/": "long"}
"""The marker that a folder brings."""

DOORS: tuple[tuple[Any, str], ...] = (
    (subprocess.Popen, "__init__"),
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "system"),
)
"""Through which a process is started: whose attribute it is, and its name."""

_LEFT_OUT = re.compile(r"not \(?(\w+(?: or \w+)*)\)?")
_OF_THE_FILE = re.compile(r"^pytestmark = (.+)$", re.MULTILINE)
_FIRST_TEST = re.compile(r"^(?:async def|def|class|@)", re.MULTILINE)
_MARKER = re.compile(r"\bpytest\.mark\.(\w+)")


def mark(items: Iterable[pytest.Item]) -> None:
    """Give each test the markers of its fixtures and of its folder."""
    for item in items:
        for folder, name in FOLDERS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(name)
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in FIXTURES:
                item.add_marker(FIXTURES[fixture])


def unwanted(expression: str) -> set[str]:
    """The markers whose tests are left out. Of expressions only the plain ones are understood,
    `not soak` and `not (soak or spark)`."""
    plain = _LEFT_OUT.fullmatch(expression)
    return set() if plain is None else set(plain[1].split(" or "))


def left_out(file: str, text: str, expression: str) -> bool:
    """Whether nothing of a file is asked for, by what its folder and its `pytestmark` say.

    Such a file need not be loaded: those with Spark bring a second of imports.
    """
    found = {name for folder, name in FOLDERS.items() if file.startswith(folder)}
    first = _FIRST_TEST.search(text)
    said = _OF_THE_FILE.search(text, 0, first.start() if first is not None else len(text))
    if said is not None:
        found.update(_MARKER.findall(said[1]))
    return not found.isdisjoint(unwanted(expression))


def asked_for(cases: Iterable[Any], markers: set[str]) -> list[Any]:
    """The cases of a test that have none of the markers; one of them where all have one."""
    listed = list(cases)
    kept = [
        case
        for case in listed
        if markers.isdisjoint(mark.name for mark in getattr(case, "marks", ()))
    ]
    return kept or listed[:1]


class Chosen:
    """Passes by what would not be chosen: whole files, and the cases of tests, of which a soak has
    seven thousand. Their making took a third of the time of collecting."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Of a test that is left out, one case is left out for all of them."""
        markers = unwanted(metafunc.config.option.markexpr)
        if not markers:
            return
        out = any(mark.name in markers for mark in metafunc.definition.iter_markers())
        every = metafunc.parametrize

        def chosen(names: Any, cases: Iterable[Any], *more: Any, **named: Any) -> None:
            if isinstance(named.get("ids"), list | tuple):
                every(names, cases, *more, **named)
            else:
                kept = list(cases)[:1] if out else asked_for(cases, markers)
                every(names, kept, *more, **named)

        metafunc.parametrize = chosen  # type: ignore[method-assign, assignment]

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Of a file that is named on the command line pytest shall say itself what it finds."""
        if collection_path.suffix != ".py" or not collection_path.is_relative_to(config.rootpath):
            return None
        file = collection_path.relative_to(config.rootpath).as_posix()
        if any(file in word for word in config.args):
            return None
        expression = config.option.markexpr
        if expression and left_out(file, collection_path.read_text("utf-8"), expression):
            return True
        return None


def says(item: pytest.Item) -> bool:
    """Whether a test says that it starts processes; Spark is one."""
    return any(item.get_closest_marker(name) is not None for name in ("process", "spark"))


class Watch:
    """Sees processes being started by tests that do not say so."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Stand at the doors. An audit hook would be called for every file that is opened and
        every module that is loaded: that is two percent of all."""
        for owner, name in DOORS:
            setattr(owner, name, self._heard(getattr(owner, name)))

    def pytest_sessionfinish(self) -> None:
        """Leave them as they were."""
        for owner, name in DOORS:
            setattr(owner, name, getattr(owner, name).__wrapped__)

    def _heard(self, door: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(door)
        def through(*words: Any, **named: Any) -> Any:
            said = named.get("args", words[1:2] or words[:1])
            self.started.append(f"{door.__name__} {said}")
            return door(*words, **named)

        return through

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
