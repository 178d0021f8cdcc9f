"""The made pages of the reference say what the code reads and answers."""

from __future__ import annotations

import inspect
import re
import sys
from types import ModuleType

import pytest

import oncewire
from oncewire.entry.admin.routes import TYPES
from oncewire.entry.control.verbs import TABLE
from oncewire.pipeline import sink
from oncewire.pipeline.sources import ebxml
from oncewire.pipeline.sources import oncewire as journal
from tests.parts import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import reference


@pytest.mark.parametrize("module", [journal, ebxml, sink], ids=lambda module: module.__name__)
def test_every_option_that_the_code_reads_is_listed(module: ModuleType) -> None:
    source = inspect.getsource(module)
    read = set(re.findall(r'options(?:\.get\(|\[)"(\w+)"', source))
    read |= set(re.findall(r'self\._(?:flag|number)\("(\w+)"', source))
    # The other name of a path.
    read -= {"store"}
    said = set(sink.SAID) if module is sink else set()
    assert read | said == set(module.OPTIONS)


def test_every_answer_of_a_verb_has_a_shape() -> None:
    assert {verb.returns for verb in TABLE.values()} <= set(TYPES)


def test_routes_show_what_is_sent_and_what_is_answered() -> None:
    page = "\n".join(reference.routes())
    confirm = page.partition("## POST /messages/{message_id}/confirm\n")[2].partition("\n## ")[0]
    assert '"sender": "string"' in confirm
    assert '"result": "boolean"' in confirm
    why = page.partition("## GET /messages/{message_id}/why\n")[2].partition("\n## ")[0]
    assert '"why": "string"' in why
    find = page.partition("## GET /find\n")[2].partition("\n## ")[0]
    assert "Only in these states" in find


def test_the_python_page_has_every_verb_in_a_group() -> None:
    page = "\n".join(reference.python())
    verbs = [name for name in dir(oncewire.OpenParty) if not name.startswith("_")]
    assert page.count(".. automethod:: oncewire.OpenParty.") == len(verbs)
    assert ".. autodata:: oncewire.Document" in page
