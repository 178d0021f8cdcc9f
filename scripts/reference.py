"""Write the pages of the site's reference from the definitions that the code itself uses.

`make docs` calls it before the site is built; nothing that it writes is kept in the repository, so
a page cannot say another thing than the code.
"""

from __future__ import annotations

import csv
import inspect
import json
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
from oncewire.entry.admin.app import AdminApp
from oncewire.entry.admin.routes import page as openapi_page
from oncewire.entry.cli.main import build
from oncewire.entry.cli.output import EXIT_CODES
from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import KEYS as SETTINGS
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import open_store
from oncewire.entry.running.alerting import CauseKind
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
    """The routes of the admin port with their bodies, from its OpenAPI page."""
    yield "Every route of the admin port. [The admin port](../rest.md) says how to call them, and"
    yield "`/openapi.json` of a running party has the same for programs. In a body a word stands"
    yield "for the type of a value; `?` follows one that may be left out, and `...` stands for"
    yield "more of the same."
    yield ""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "acme"
        make_party(folder, "acme", now=RealWorld().now(), key_kind=KeyKind.EC)
        party = load(folder).settings
        open_store(party).close()
        served = AdminApp(party).routes
    page = openapi_page((one.path, one.method, one.permission, one.operation) for one in served)
    kinds = page["components"]["schemas"]
    for path, methods in sorted(page["paths"].items()):
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}"
            yield ""
            for words in ("summary", "description"):
                if operation.get(words):
                    yield f"{operation[words]}\n"
            role = operation["x-permission"]
            yield "Anyone may call it." if role == "open" else f"It needs the role `{role}`."
            yield ""
            said = operation.get("parameters", [])
            if said:
                yield from table(
                    ("parameter", "where", "type", "meaning"),
                    (
                        (
                            code(one["name"]),
                            one["in"],
                            one["schema"].get("type", ""),
                            one.get("description", ""),
                        )
                        for one in said
                    ),
                )
            yield from _body("Request", operation.get("requestBody", {}), kinds)
            for status, answer in operation["responses"].items():
                if status != "default":
                    yield from _body(f"Answer {status}", answer, kinds)
    yield "## What goes wrong"
    yield ""
    yield "Every route answers an error in this form, with the status that `status` repeats."
    yield ""
    yield from _body("Answer", page["components"]["responses"]["Problem"], kinds)


def _body(title: str, said: dict[str, Any], kinds: dict[str, Any]) -> Iterator[str]:
    """A request or an answer: its media types, and the members of its JSON."""
    content = said.get("content", {})
    if not content:
        return
    yield f"{title}: {', '.join(map(code, content))}."
    yield ""
    shown = [one["schema"] for kind, one in content.items() if kind.endswith("json")]
    for schema in filter(None, shown):
        yield "```text"
        yield json.dumps(_shape(schema, kinds), indent=2).replace('"null"', "null")
        yield "```"
        yield ""
        rows = [
            (code(name), one["description"])
            for name, one in schema.get("properties", {}).items()
            if one.get("description")
        ]
        if rows:
            yield from table(("member", "meaning"), rows)


def _shape(schema: dict[str, Any], kinds: dict[str, Any]) -> Any:
    """What a value of a schema looks like: members by name, and a word for each plain value."""
    if found := schema.get("$ref"):
        return _shape(kinds[found.rpartition("/")[2]], kinds)
    if either := schema.get("anyOf", schema.get("oneOf")):
        shapes = [_shape(one, kinds) for one in either]
        others = [one for one in shapes if one != "null"]
        if len(others) == 1 and not isinstance(others[0], str):
            return others[0]
        return " or ".join(str(one) for one in shapes)
    if "enum" in schema:
        return " or ".join(str(one) for one in schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            needed = set(schema.get("required", ()))
            return {
                name if name in needed else f"{name}?": _shape(one, kinds)
                for name, one in schema["properties"].items()
            }
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return {"...": _shape(schema["additionalProperties"], kinds)}
        case "array" if "prefixItems" in schema:
            return [_shape(one, kinds) for one in schema["prefixItems"]]
        case "array":
            return [_shape(schema.get("items") or {}, kinds), "..."]
        case str() as word:
            return word
    return "any"


VERB_GROUPS = {
    "Send": "send submit wait ask",
    "Receive": "take messages confirm",
    "Hear of failures": "notices confirm_notice",
    "Find a message, and why it is where it is": "find outbox inbox why show",
    "Watch the party": "status overview incidents channels readiness figures",
    "Try a partner": "ping try_partner",
    "Decide": "resend resume abandon pause restart hold accept_clock trim_journal",
}
"""The verbs of a party, by what a program wants."""

VALUE_GROUPS = {
    "Documents and messages": "Document Payload ReceivedMessage SendOptions Service Submission",
    "How a message ended": "Accepted Outcome Notice Severity StatusResponse MessageStatus",
    "What is known of a message": (
        "MessagePage ListedMessage Story StoryStep Timing Usual Wait MessageDetails DocumentFacts"
        " HopFacts"
    ),
    "How the party is doing": (
        "Status Overview PartnerOverview RefusedMessage Trouble ChannelView WindowCell Readiness"
        " Tried"
    ),
}
"""What verbs take and return."""


def python() -> Iterator[str]:
    """All that `oncewire` offers to programs, by what a program wants."""
    yield "A program opens a party, calls its verbs and gets values back. Whatever goes wrong is an"
    yield "`OncewireError`; [Errors](errors.md) lists them. [Embed it in a Python"
    yield "program](../../howto/python.md) shows whole programs."
    yield ""
    yield "## Open a party"
    yield ""
    for name in ("open_party", "open_party_blocking", "connect"):
        yield from _directive("autofunction", name)
    yield "The three give an `OpenParty`, a `BlockingParty` and a `ConnectedParty`. All have the"
    yield "verbs below. Those of a `BlockingParty` are called without `await`. A `ConnectedParty`"
    yield "has no `messages`: call `take` with a `timeout`."
    yield ""
    left = {name for name in dir(oncewire.OpenParty) if not name.startswith("_")}
    for title, names in VERB_GROUPS.items():
        yield f"## {title}"
        yield ""
        for name in names.split():
            left.remove(name)
            yield from _directive("automethod", f"OpenParty.{name}")
    yield "## Events"
    yield ""
    yield "A program on another machine follows the journal as it grows at `GET /events` of the"
    yield "[admin port](../rest.md#calls); `GET /journal` gives the rows that are there. A handler"
    yield "calls a program for each message and each failure:"
    yield "[Delivery](../../howto/delivery.md) says how."
    yield ""
    values = {
        name
        for name in dir(oncewire)
        if inspect.isclass(found := getattr(oncewire, name)) and not issubclass(found, Exception)
    } - {"OpenParty", "BlockingParty", "ConnectedParty"}
    for title, names in VALUE_GROUPS.items():
        yield f"## {title}"
        yield ""
        for name in names.split():
            if name in values:
                values.remove(name)
                yield from _directive("autoclass", name, "   :members:")
            else:
                yield from _directive("autodata", name)
    if left | values:
        raise SystemExit(f"no group of the Python page has {', '.join(sorted(left | values))}")


def _directive(kind: str, name: str, *options: str) -> Iterator[str]:
    yield "```{eval-rst}"
    yield f".. {kind}:: oncewire.{name}"
    yield from options
    yield "```"
    yield ""


def spark_options() -> Iterator[str]:
    """The options of the Spark formats, from the tables that their code reads."""
    from oncewire.pipeline import sink
    from oncewire.pipeline.sources import ebxml
    from oncewire.pipeline.sources import oncewire as journal

    yield "Options of the formats that `oncewire.pipeline.session.register(spark)` makes known."
    yield "[The pipeline](../../howto/pipeline.md#from-your-own-spark-session) shows them at work."
    yield ""
    for title, options in (
        ('Reading: `format("oncewire")`', journal.OPTIONS),
        ('Reading raw messages: `format("ebxml")`', ebxml.OPTIONS),
        ('Writing: `format("oncewire")`', sink.OPTIONS),
    ):
        yield f"## {title}"
        yield ""
        yield from table(
            ("option", "if not said", "meaning"),
            ((code(name), code(usual), says) for name, (usual, says) in options.items()),
        )


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
    "spark-options": ("Options of the Spark formats", spark_options),
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
