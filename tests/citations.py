"""Citations as functions: what a text refers to, and which of it leads nowhere.

Sources and pages cite decisions (C7, gap 14, DRV-6), rows of the catalogue (RTY-8), promises (S2)
and pages. Each number has one place where it is explained, and these functions know that place.
"""

import ast
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.syntax import nodes_of

CORPUS_INDEX = "INDEX.md"
"""The index of the corpus: the one page that is named and lies outside the repository."""

_NUMBER = re.compile(r"\b(?:(C)(\d+)\b|(gap)s? (\d+)\b|(DRV)-(\d+)\b)")
_PROMISE = re.compile(r"\b[SL]\d{1,2}\b")
_PAGE = re.compile(r"(?<![\w./-])((?:docs/)[\w./-]+\.md|[A-Z_]+\.md)(?:#([\w-]+))?")
_LINK = re.compile(r"\]\(((?!https?:)[^)#\s]*)(?:#([\w-]+))?\)")
_PATH = re.compile(r"`([\w./-]*\w(?:\.py|/))`")
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Sources:
    """The places where citations lead, in a checkout."""

    root: Path

    @cached_property
    def requirements(self) -> frozenset[str]:
        """The rows of the catalogue."""
        with (self.root / "docs" / "requirements.csv").open(encoding="utf-8", newline="") as file:
            return frozenset(row["id"] for row in csv.DictReader(file))

    @cached_property
    def promises(self) -> frozenset[str]:
        """The promises that docs/reference/journal.md lists."""
        page = (self.root / "docs" / "reference" / "journal.md").read_text(encoding="utf-8")
        return frozenset(re.findall(r"^\| ([SL]\d+) ", page, re.MULTILINE))

    @cached_property
    def decisions(self) -> frozenset[str]:
        """The anchors of docs/explanation/decisions.md."""
        return anchors(
            (self.root / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8")
        )

    @cached_property
    def row(self) -> re.Pattern[str]:
        """A row of the catalogue, or several: `CPA-9..12`."""
        groups = "|".join(sorted({row.partition("-")[0] for row in self.requirements}))
        return re.compile(rf"\b({groups})-(\d+)(?:\.\.(?:(?:{groups})-)?(\d+))?\b")

    def numbered(self, text: str) -> list[str]:
        """Every number of a decision or of a row of the catalogue in the text."""
        found = [match.group() for match in _NUMBER.finditer(text)]
        return found + [match.group() for match in self.row.finditer(text)]

    def dangling(self, text: str, file: str) -> list[str]:
        """The citations of a file that lead nowhere, each with its line."""
        wrong = []
        for line, words in enumerate(text.splitlines(), 1):
            wrong += [f"{file}:{line}: {cited} leads nowhere" for cited in self._lost(words, file)]
        return wrong

    def _lost(self, line: str, file: str) -> Iterator[str]:
        for match in _NUMBER.finditer(line):
            kind, number = (group for group in match.groups() if group is not None)
            anchor = f"c{number}" if kind == "C" else f"{kind.lower()}-{number}"
            if anchor not in self.decisions:
                yield match.group()
        for match in self.row.finditer(line):
            group, first, last = match.groups()
            if not {f"{group}-{number}" for number in (first, last or first)} <= self.requirements:
                yield match.group()
        for match in _PROMISE.finditer(line):
            if match.group() not in self.promises:
                yield match.group()
        for match in _PAGE.finditer(line):
            if match[1] != CORPUS_INDEX and not self._page(self.root / match[1], match[2]):
                yield match.group()
        if file.endswith(".md"):
            for match in _LINK.finditer(line):
                if not self._page(self.root / Path(file).parent / match[1], match[2], file):
                    yield match.group()

    def _page(self, path: Path, anchor: str | None, file: str = "") -> bool:
        path = path if path.is_file() else self.root / file
        if not path.is_file():
            return False
        return anchor is None or anchor in anchors(path.read_text(encoding="utf-8"))

    def lost_paths(self, text: str, file: str) -> list[str]:
        """Modules and folders between backticks that are neither in the package nor beside it."""
        return [
            f"{file}:{line}: there is no {path}"
            for line, words in enumerate(text.splitlines(), 1)
            for path in _PATH.findall(words)
            if not any((base / path).exists() for base in (self.root, self.root / "src/oncewire"))
        ]


@cache
def anchors(page: str) -> frozenset[str]:
    """Where a page can be linked to: its explicit anchors and its headings."""
    headings = (re.sub(r"[^\w\- ]", "", text).strip().lower() for text in _HEADING.findall(page))
    return frozenset(_ANCHOR.findall(page)) | {text.replace(" ", "-") for text in headings}


def said(source: str) -> Iterator[tuple[int, str]]:
    """Every text in a module that is not a docstring: what people may get to read."""
    nodes = nodes_of(source)
    explained = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes:
        spoken = isinstance(node, ast.Constant) and id(node) not in explained
        if spoken and isinstance(node.value, str):
            yield node.lineno, node.value
