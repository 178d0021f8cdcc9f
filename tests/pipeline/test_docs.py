"""docs/howto/pipeline.md explains every column of every table, every command, and no other."""

import re

import pytest
from typer.main import get_command

from oncewire.entry.cli.main import build
from oncewire.pipeline.lake import tables
from tests.parts import ROOT

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "howto" / "pipeline.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

TABLES = {
    "journal": tables.JOURNAL,
    "quarantine": tables.QUARANTINE,
    "envelopes": tables.ENVELOPES,
    "messages": tables.MESSAGES,
    "attempts": tables.ATTEMPTS,
    "ledger": tables.LEDGER,
    "sequence_gaps": tables.SEQUENCE_GAPS,
    "partner_service": tables.PARTNER_SERVICE,
    "violations": tables.VIOLATIONS,
    "judged": tables.JUDGED,
}


def explained(table: str) -> list[str]:
    """The columns that the first cells under a table's heading name."""
    found = re.search(rf"^### `{table}` .*?\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, table
    cells = re.findall(r"^\| (`[^|]*) \|", found.group(1), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_explained_once(table: str) -> None:
    names = explained(table)
    assert sorted(names) == sorted(TABLES[table].fieldNames())


def test_there_is_no_heading_for_a_table_that_is_none() -> None:
    assert re.findall(r"^### `(\w+)`", PAGE, re.MULTILINE) == list(TABLES)


def test_every_command_is_explained() -> None:
    group = get_command(build()).commands["pipeline"]  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `(\w+)` \| [a-z]+ ", PAGE, re.MULTILINE)) >= set(group.commands)
    shown = re.findall(r"^oncewire pipeline (.*?)(?:\s+#.*)?$", PAGE + README, re.MULTILINE)
    assert len(shown) > 8
    for words in shown:
        name, *rest = words.split()
        options = {word for one in group.commands[name].params for word in one.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words
