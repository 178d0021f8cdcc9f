"""The public door: what `import oncewire` gives a program, and nothing else."""

import ast
import builtins
import dataclasses
import importlib
import inspect
import pkgutil
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncewire
from oncewire import errors
from oncewire.entry.control import language
from oncewire.entry.control.verbs import TABLE
from oncewire.errors import OncewireError

HOME = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/howto/delivery.md",
    "docs/explanation/security.md",
    "docs/howto/backup.md",
    "docs/explanation/guarantee.md",
)
PROMISED = (
    "open_party", "open_party_blocking", "SendOptions", "ReceivedMessage", "Outcome",
    "OncewireError", "__version__",
)  # fmt: skip
PUBLIC = sorted(set(dir(oncewire)) - {"__version__"})
PARTIES = (oncewire.OpenParty, oncewire.BlockingParty)

# What may stand in a public signature without being a name of ours.
PLAIN = set(dir(builtins)) | {
    "Any", "Path", "BinaryIO", "Mapping", "Sequence", "AbstractAsyncContextManager",
    "AbstractContextManager", "timedelta", "AsyncIterator", "Iterator",
    "ClassVar", "Self",
}  # fmt: skip
# Whole numbers that count microseconds; whoever has one says so in its docstring.
NUMBERS = {"Instant", "Duration"}

# Errors that nobody outside meets, and who deals with each of them.
INNER = {
    "ReadFault": "what was read of a message before it was refused; an answer is made of it",
    "RefusedByTerms": "the same of one that an agreement refuses",
    "TooLong": "the reader of a body stops; the door of the handler answers",
    "TooLarge": "a body above the bound; the door of the handler answers",
    "BrokenBody": "the partner hung up; the listener counts it",
    "OverBudget": "a request is sent away with 429 or 503",
    "TermsMissing": "the checker makes a finding of it, or tells it as a JournalProblem",
    "OnItsWay": "a turn waits for a file of the spool, and is taken again when it is there",
    "NotStarted": "`oncewire serve --detach` tells it as the TransportProblem that it is",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(oncewire, name)
    if name != "Document":
        assert inspect.getdoc(found)
        assert found.__name__ == name


def test_the_promised_names_are_public_and_nothing_else_is() -> None:
    assert set(PROMISED) <= set(dir(oncewire))
    for name in ("Engine", "import_module", "logging"):
        assert name not in dir(oncewire)
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        oncewire.Engine  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("kind", PARTIES)
def test_a_party_has_its_verbs_and_nothing_else(kind: type) -> None:
    verbs = {name for name in dir(kind) if not name.startswith("_")}
    assert verbs == {*TABLE, "submit", "messages"} - {"reload"}
    for name in verbs:
        verb = getattr(kind, name)
        assert inspect.getdoc(verb), name
        assert inspect.signature(verb).return_annotation is not inspect.Signature.empty, name


def test_the_page_has_a_line_for_every_verb() -> None:
    page = oncewire.__doc__ or ""
    lines = re.findall(r"^    (\w+)\(.*?\)\s{2,}\S.*$", page, re.MULTILINE)
    assert set(lines) == {*TABLE, "submit", "messages"} - {"reload"}
    assert len(lines) == len(set(lines))


def _annotations(kind: type) -> Iterator[tuple[str, str]]:
    """Every type that the public signatures and fields of a class name."""
    for name, hint in inspect.get_annotations(kind).items():
        if not name.startswith("_"):
            yield name, str(hint)
    for name, method in inspect.getmembers(kind, callable):
        if not name.startswith("_") and kind.__module__ == getattr(method, "__module__", ""):
            yield from ((name, str(hint)) for hint in inspect.get_annotations(method).values())
    if kind in PARTIES:
        for name in TABLE:
            if hasattr(kind, name):
                hints = inspect.get_annotations(getattr(kind, name))
                yield from ((name, str(hint)) for hint in hints.values())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_type_in_a_public_signature_is_public(name: str) -> None:
    found = getattr(oncewire, name)
    if isinstance(found, type):
        hints = list(_annotations(found))
    elif callable(found):
        hints = [(name, str(hint)) for hint in inspect.get_annotations(found).values()]
    else:
        return
    for where, hint in hints:
        for node in ast.walk(ast.parse(hint, mode="eval")):
            if isinstance(node, ast.Name) and node.id not in NUMBERS | PLAIN:
                assert node.id in PUBLIC, f"{name}.{where}: {hint}"
            if isinstance(node, ast.Name) and node.id in NUMBERS:
                assert "microseconds" in (inspect.getdoc(found) or ""), f"{name}.{where}"


def test_the_fields_of_a_value_are_described_in_its_docstring() -> None:
    for name in PUBLIC:
        kind = getattr(oncewire, name)
        names = [*getattr(kind, "__struct_fields__", ())]
        if dataclasses.is_dataclass(kind):
            names += [each.name for each in dataclasses.fields(kind)]
        for each in names:
            assert f"`{each}`" in (inspect.getdoc(kind) or ""), f"{name}.{each}"


def _all_errors(kind: type = OncewireError) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _all_errors(below)


def test_every_error_that_a_program_can_meet_is_public_and_in_the_tree() -> None:
    for module in pkgutil.walk_packages(oncewire.__path__, "oncewire."):
        if "pipeline" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = {kind.__name__: kind for kind in _all_errors() if kind.__module__[:8] == "oncewire"}
    own = {name for name, kind in kinds.items() if kind.__module__ == errors.__name__}
    assert set(kinds) - own == set(INNER)
    tree = errors.__doc__ or ""
    for name in own:
        assert getattr(oncewire, name) is kinds[name]
        assert re.search(rf"[─ ]{name} ", tree), name


def test_every_error_keeps_its_name_on_the_control_socket() -> None:
    for kind in _all_errors():
        on_the_wire = kind in (errors.SoapFault, errors.TransientError)
        if kind.__module__ == errors.__name__ and not on_the_wire:
            told = language.error_frame(kind("what", remedy="then"))
            assert type(language.read_error(told.values)) is kind, kind.__name__


@pytest.mark.process
def test_importing_it_loads_nothing_else() -> None:
    script = "import sys, oncewire; print(*sorted(m for m in sys.modules if 'oncewire' in m))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.decode().split() == ["oncewire", "oncewire.errors"]


def test_its_help_is_a_page() -> None:
    page = pydoc.render_doc(oncewire, renderer=pydoc.plaintext)
    for word in ("open_party", "send", "wait", "take", "confirm", "notices", "SendOptions"):
        assert word in page
    assert len(page.splitlines()) < 90


@pytest.mark.parametrize("name", PAGES)
def test_pages_for_programs_use_only_the_door(name: str) -> None:
    samples = re.findall(r"```python\n(.*?)```", (HOME / name).read_text(), re.DOTALL)
    for sample in samples:
        for node in ast.walk(ast.parse(sample)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncewire"):
                assert node.module == "oncewire", sample
                assert {each.name for each in node.names} <= set(dir(oncewire))
            if isinstance(node, ast.Import):
                assert all(each.name.split(".")[1:] == [] or "oncewire" not in each.name
                           for each in node.names)  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [page for page in sorted((HOME / "docs").rglob("*.md")) if "made" not in page.parts],
    ids=lambda page: page.name,
)
def test_what_a_page_imports_is_there(page: Path) -> None:
    for sample in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(sample)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncewire"):
                room = importlib.import_module(node.module or "")
                for each in node.names:
                    assert hasattr(room, each.name), f"{node.module} has no {each.name}"
