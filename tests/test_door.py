"""The public door: what `import oncewire` gives a program, and nothing else."""

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oncewire

HOME = Path(__file__).parent.parent
PAGES = ("README.md", "docs/delivery.md", "docs/security.md", "docs/backup.md", "docs/guarantee.md")
PROMISED = (
    "open_party", "open_party_blocking", "SendOptions", "ReceivedMessage", "Outcome",
    "OncewireError", "__version__",
)  # fmt: skip


@pytest.mark.parametrize("name", oncewire.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(oncewire, name)
    assert name in dir(oncewire)
    if name != "__version__":
        assert inspect.getdoc(found)
        assert found.__name__ == name


def test_the_promised_names_are_public() -> None:
    assert set(PROMISED) <= set(oncewire.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        oncewire.Engine  # type: ignore[attr-defined]  # noqa: B018


def test_every_method_of_a_party_has_its_sentence_and_its_signature() -> None:
    for kind in (oncewire.OpenParty, oncewire.BlockingParty):
        verbs = [name for name in dir(kind) if not name.startswith("_")]
        assert {"send", "wait", "take", "confirm", "notices", "status"} <= set(verbs)
        for name in verbs:
            verb = getattr(kind, name)
            assert inspect.getdoc(verb), name
            assert inspect.signature(verb).return_annotation is not inspect.Signature.empty, name


@pytest.mark.process
def test_importing_it_loads_nothing_else() -> None:
    script = "import sys, oncewire; print(*sorted(m for m in sys.modules if 'oncewire' in m))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.decode().split() == ["oncewire", "oncewire.errors"]


def test_its_help_begins_with_a_page_that_names_the_verbs() -> None:
    page = pydoc.render_doc(oncewire, renderer=pydoc.plaintext).partition("PACKAGE CONTENTS")[0]
    for word in ("open_party", "send", "wait", "take", "confirm", "notices", "SendOptions"):
        assert word in page
    assert len(page.splitlines()) < 50


@pytest.mark.parametrize("name", PAGES)
def test_pages_for_programs_use_only_the_door(name: str) -> None:
    samples = re.findall(r"```python\n(.*?)```", (HOME / name).read_text(), re.DOTALL)
    for sample in samples:
        for node in ast.walk(ast.parse(sample)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncewire"):
                assert node.module == "oncewire", sample
                assert {each.name for each in node.names} <= set(oncewire.__all__)
            if isinstance(node, ast.Import):
                assert all(each.name.split(".")[1:] == [] or "oncewire" not in each.name
                           for each in node.names)  # fmt: skip


@pytest.mark.parametrize("page", sorted((HOME / "docs").glob("*.md")), ids=lambda page: page.name)
def test_what_a_page_imports_is_there(page: Path) -> None:
    for sample in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(sample)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncewire"):
                room = importlib.import_module(node.module or "")
                for each in node.names:
                    assert hasattr(room, each.name), f"{node.module} has no {each.name}"
