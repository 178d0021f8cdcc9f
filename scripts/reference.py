"""Write the pages of the site's reference from the definitions that the code itself uses.

`make docs` calls it before the site is built; nothing that it writes is kept in the repository, so
a page cannot say another thing than the code.
"""

from __future__ import annotations

import csv
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import requirements
from typer.main import get_command

import oncewire
from oncewire import errors
from oncewire.agreement.compose import PROFILES, compose, profile_values
from oncewire.agreement.keys import KEYS as AGREEMENT_KEYS
from oncewire.entry.admin import openapi
from oncewire.entry.admin.app import AdminApp
from oncewire.entry.cli.main import build
from oncewire.entry.cli.output import EXIT_CODES
from oncewire.entry.party.folder import make_party
from oncewire.entry.party.keys import KeyKind
from oncewire.entry.party.settings import KEYS as SETTINGS
from oncewire.entry.party.settings import load
from oncewire.entry.running.assemble import open_store
from oncewire.entry.watching.causes import CauseKind
from oncewire.entry.watching.metrics import METRICS, UP
from oncewire.handler.world import RealWorld
from oncewire.pipeline.lake.columns import COMMENT, former
from oncewire.pipeline.lake.tables import EVERY
from oncewire.wire.limits import DEFAULT_LIMITS, Limits

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "docs" / "reference" / "made"


def cell(text: object) -> str:
    """A text as a table's cell holds it: one line, and no bar that would end the cell."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"
    yield ""


def code(text: object) -> str:
    """A text in the letters of code; nothing where there is none."""
    return f"`{text}`" if str(text) else ""


# --- commands ------------------------------------------------------------------------------------


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child, found in sorted(getattr(command, "commands", {}).items()):
        if not found.hidden:
            yield from _walk(found, f"{name} {child}")


def commands() -> Iterator[str]:
    """Every command with its arguments and options, as `--help` has them."""
    yield "Every command has `--help`; one that shows something has `--json`."
    yield ""
    for name, command in _walk(get_command(build()), "oncewire"):
        group = getattr(command, "commands", None)
        if name == "oncewire" or (group and not command.invoke_without_command):
            continue
        yield f"## {name}"
        yield ""
        yield inspect.cleandoc(command.help or "")
        yield ""
        said = [one for one in command.params if one.name != "help" and not one.hidden]
        if said:
            yield from table(
                ("argument or option", "meaning"),
                (
                    (
                        " ".join(code(word) for word in one.opts + one.secondary_opts)
                        if one.param_type_name == "option"
                        else code((one.name or "").upper()),
                        (one.help or "") + (" Required." if one.required else ""),
                    )
                    for one in said
                ),
            )


def exit_codes() -> Iterator[str]:
    """What a command ends with."""
    yield from table(("exit code", "meaning"), EXIT_CODES.items())


# --- agreements and settings ---------------------------------------------------------------------


def agreement_keys() -> Iterator[str]:
    """The keys of an agreement, with the value that each profile gives them."""
    yield "An agreement is a TOML file in `agreements/`. A key that it leaves out has the value of"
    yield "its profile (`oncewire agreement show PARTNER` says which, and where each came from)."
    yield ""
    usual = {value.key: value for value in compose(profile_values("ebms2")).values}
    sections: dict[str, list[Any]] = {}
    for key in AGREEMENT_KEYS.values():
        sections.setdefault(key.name.rpartition(".")[0], []).append(key)
    for section, keys in sections.items():
        yield f"## {'[' + section + ']' if section else 'At the top'}"
        yield ""
        yield from table(
            ("key", "value", "under `ebms2`", "meaning"),
            (
                (
                    code(key.name),
                    key.kind.looks,
                    code(key.kind.show(usual[key.name].value)) if key.name in usual else "",
                    key.says,
                )
                for key in keys
            ),
        )


def profiles() -> Iterator[str]:
    """The profiles, and what each sets."""
    yield "A profile is a set of values that a draft or a community has settled. `oncewire partner"
    yield "add --profile NAME` begins an agreement with it."
    yield ""
    for profile in PROFILES.values():
        yield f"## {profile.name}"
        yield ""
        yield profile.says
        yield ""
        if profile.extends:
            yield f"It has the values of `{profile.extends}`, and these:"
            yield ""
        values = profile_values(profile.name)
        above = profile_values(profile.extends) if profile.extends else {}
        own = {
            name: value
            for name, value in values.items()
            if name not in above or above[name].value != value.value
        }
        yield from table(
            ("key", "value"),
            (
                (code(name), code(AGREEMENT_KEYS[name].kind.show(value.value)))
                for name, value in own.items()
            ),
        )


def settings() -> Iterator[str]:
    """The settings of a party."""
    yield "A party's settings are its `oncewire.toml`. A variable of the environment wins over the"
    yield "file, and an option of a command over both; `oncewire config show` says who said what."
    yield ""
    section = ""
    rows: list[tuple[object, ...]] = []
    for key in SETTINGS.values():
        here = key.name.partition(".")[0]
        if here != section:
            if rows:
                yield from table(("key", "value", "if not said", "meaning"), rows)
            section, rows = here, []
            yield f"## [{section}]"
            yield ""
        default = "" if key.secret or key.default is None else code(key.kind.show(key.default))
        rows.append((code(key.name), key.kind.looks, default, key.says))
    yield from table(("key", "value", "if not said", "meaning"), rows)


def limits() -> Iterator[str]:
    """How large, deep and wide a message may be."""
    yield inspect.getdoc(inspect.getmodule(Limits)) or ""
    yield ""
    source = inspect.getsource(Limits).splitlines()
    reasons: dict[str, str] = {}
    said: list[str] = []
    for line in source:
        words = line.strip()
        if words.startswith("#"):
            said.append(words.lstrip("# "))
        elif found := re.match(r"(\w+): ", words):
            reasons[found[1]] = " ".join(said)
            said = []
    yield from table(
        ("limit", "value", "reason"),
        (
            (code(name), "none" if value is None else f"{value:,}", reasons[name])
            for name, value in asdict(DEFAULT_LIMITS).items()
        ),
    )


# --- watching ------------------------------------------------------------------------------------


def metrics() -> Iterator[str]:
    """What Prometheus is told, and what alerts are about."""
    yield "`/metrics` of the admin port, in the text format of Prometheus."
    yield ""
    yield from table(
        ("metric", "kind", "labels", "meaning"),
        (
            (code(one.name), one.kind, ", ".join(map(code, one.labels)), one.help)
            for one in (UP, *METRICS)
        ),
    )
    yield "## Alerts"
    yield ""
    yield "An alert names the kind of its cause; [Watching](../../howto/watching.md) says how they"
    yield "are sent."
    yield ""
    yield from table(("kind",), ((code(one.value),) for one in CauseKind))


def error_codes() -> Iterator[str]:
    """Every error."""
    yield "Each error says what is wrong (`problem`) and what to do next (`remedy`, on the command"
    yield "line after `next:`). One with a code on the wire is told to the sender in an ErrorList."
    yield ""
    found = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, errors.OncewireError)
    ]
    yield from table(
        ("error", "is a", "code on the wire", "meaning"),
        (
            (
                code(one.__name__),
                code(one.__mro__[1].__name__),
                code(one.code) if issubclass(one, errors.EbxmlError) else "",
                inspect.getdoc(one) or "",
            )
            for one in sorted(found, key=lambda one: inspect.getsourcelines(one)[1])
        ),
    )


# --- programs ------------------------------------------------------------------------------------


def routes() -> Iterator[str]:
    """The routes of the admin port, from its OpenAPI page."""
    yield "Every route of the admin port. `/openapi.json` of a running party has the same with the"
    yield "shape of each answer; [The admin port](../rest.md) says how to call them."
    yield ""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "acme"
        make_party(folder, "acme", now=RealWorld().now(), key_kind=KeyKind.EC)
        party = load(folder).settings
        open_store(party).close()
        served = AdminApp(party).routes
    page = openapi.page((one.path, one.method, one.permission, one.operation) for one in served)
    for path, methods in sorted(page["paths"].items()):
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}"
            yield ""
            for words in ("summary", "description"):
                if operation.get(words):
                    yield f"{operation[words]}\n"
            if role := operation.get("x-permission"):
                yield f"It needs a token of the role `{role}`."
                yield ""
            said = operation.get("parameters", [])
            if said:
                yield from table(
                    ("parameter", "where", "meaning"),
                    ((code(one["name"]), one["in"], one.get("description", "")) for one in said),
                )


def python() -> Iterator[str]:
    """All that `oncewire` offers to programs."""
    yield "```text"
    yield (inspect.getdoc(oncewire) or "").replace("```", "")
    yield "```"
    yield ""
    for name in sorted(dir(oncewire), key=str.lower):
        found = getattr(oncewire, name)
        if name.startswith("_") or inspect.ismodule(found):
            continue
        kind = "autoclass" if inspect.isclass(found) else "autofunction"
        if kind == "autofunction" and not inspect.isfunction(found):
            continue
        if inspect.isclass(found) and issubclass(found, Exception):
            continue
        yield "```{eval-rst}"
        yield f".. {kind}:: oncewire.{name}"
        if kind == "autoclass":
            yield "   :members:"
        yield "```"
        yield ""


def traceability() -> Iterator[str]:
    """Each requirement with its draft, its tests and its mutants."""
    rows = requirements.catalogue(ROOT / "docs" / "requirements.csv")
    coverage = requirements.collect(rows, ROOT / "tests")
    with (ROOT / "docs" / "requirements.csv").open(encoding="utf-8", newline="") as file:
        said = list(csv.DictReader(file))
    yield "Every rule of the five drafts, with the tests that show it and the deliberate bugs"
    yield "(mutants) that those tests catch. `make requirements` prints the same in short."
    yield ""
    yield from table(
        ("id", "level", "rule", "tests", "mutants"),
        (
            (
                row["id"],
                row["level"],
                row["behaviour"],
                ", ".join(code(test.rpartition("::")[2]) for test in coverage.tests[row["id"]]),
                ", ".join(code(one.rpartition("::")[2]) for one in coverage.mutants[row["id"]]),
            )
            for row in said
        ),
    )


def tables() -> Iterator[str]:
    """Every table of a lake, column by column."""
    yield "The tables of a lake, from gold to bronze. [The pipeline](../../howto/pipeline.md) makes"
    yield "them. A name that a column had in the first version is told with it."
    yield ""
    for layer in ("gold", "silver", "bronze"):
        for one in EVERY.values():
            if one.layer != layer:
                continue
            yield f"## {one.name} ({layer})"
            yield ""
            yield one.says
            yield ""
            names = {each.column: each.name for each in former(one.schema)}
            yield from table(
                ("column", "type", "meaning", "in v1"),
                (
                    (
                        code(column.name),
                        column.dataType.typeName(),
                        column.metadata[COMMENT],
                        code(names.get(column.name, "none"))
                        if names.get(column.name) != column.name
                        else "",
                    )
                    for column in one.schema.fields
                ),
            )


PAGES: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "commands": ("Commands", commands),
    "routes": ("REST routes", routes),
    "python": ("Python API", python),
    "agreement-keys": ("Keys of an agreement", agreement_keys),
    "profiles": ("Profiles", profiles),
    "settings": ("Settings", settings),
    "tables": ("Tables", tables),
    "metrics": ("Metrics and alerts", metrics),
    "errors": ("Errors", error_codes),
    "limits": ("Limits", limits),
    "exit-codes": ("Exit codes", exit_codes),
    "traceability": ("Requirements, tests and mutants", traceability),
}
"""The pages by their file names: the title, and what they say."""


def write(folder: Path = MADE) -> None:
    """Write every page; one whose text is as before keeps its time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, lines) in PAGES.items():
        text = "\n".join((f"# {title}", "", *lines())) + "\n"
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
