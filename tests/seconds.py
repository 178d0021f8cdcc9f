"""Where the time of a run went: seconds by folder, printed before pytest's closing counts."""

from __future__ import annotations

from collections import Counter

import pytest


class Seconds:
    """Adds up what each test took with its fixtures, whichever process ran it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test was set up, called or taken down; workers' reports come here too."""
        folder = report.nodeid.split("::", 1)[0].rpartition("/")[0]
        self.spent[folder] += report.duration
        self.tests[folder] += report.when == "call"

    def lines(self) -> list[str]:
        """One line a folder, the longest first, and the sum."""
        width = max(map(len, self.spent), default=0)
        found = [
            f"{seconds:8.1f}  {folder:<{width}}  {self.tests[folder]} tests"
            for folder, seconds in self.spent.most_common()
        ]
        return [*found, f"{self.spent.total():8.1f}  in all"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print them."""
        if self.spent:
            terminalreporter.section("seconds by folder")
            for line in self.lines():
                terminalreporter.write_line(line)
