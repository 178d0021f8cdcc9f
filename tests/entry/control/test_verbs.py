"""A verb is defined once: whatever is left out of its definition, or of what is made from it,
is told here."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import pydoc
import re
import subprocess
import sys
from inspect import BoundArguments
from pathlib import Path
from typing import Any, TypeVar

import pytest
import typer
from typer.testing import CliRunner

from oncewire.entry.cli import operator as commands
from oncewire.entry.control import language, values
from oncewire.entry.control.client import ControlServer, OfflineStore, Remote
from oncewire.entry.control.verb import (
    Awaiting,
    Blocking,
    Command,
    Method,
    Need,
    NoCommand,
    Performing,
    Permission,
    Told,
    Verb,
    Within,
    verb,
    verbs_of,
)
from oncewire.entry.control.verbs import MEANINGS, TABLE, PartyVerbs
from oncewire.entry.running.open_party import BlockingParty, OpenParty
from oncewire.errors import InvalidValue, NotAllowed
from tests.entry.terminal import whole_command
from tests.parts import ROOT

R = TypeVar("R")
EVERY = [pytest.param(found, id=name) for name, found in TABLE.items()]
EVERYBODYS = [pytest.param(found, id=name) for name, found in verbs_of(PartyVerbs).items()]


# --- what a definition must say ----------------------------------------------------------------


def test_a_verb_without_a_sentence_of_help_is_no_verb() -> None:
    async def dance(_self: object) -> None:
        pass

    async def sing(_self: object) -> None:
        """no sentence"""

    for body in (dance, sing):
        with pytest.raises(TypeError, match=f"{body.__name__}: its docstring begins"):
            verb(Need.STORE, Permission.LOOK, NoCommand("it is a sample"))(body)


def test_a_verb_says_which_command_offers_it_or_why_none_does() -> None:
    async def dance(_self: object) -> None:
        """Dance."""

    for offers in ((), (NoCommand("why"), Within("send"))):
        with pytest.raises(TypeError, match="dance: name its commands"):
            verb(Need.STORE, Permission.LOOK, *offers)(dance)


@pytest.mark.parametrize("found", EVERY)
def test_every_argument_means_something_and_every_type_can_travel(found: Verb[..., Any]) -> None:
    for argument in found.arguments:
        assert MEANINGS[argument.name].help.endswith("."), argument
        assert argument.type in values.FORMS, argument
    assert found.returns in values.FORMS


def test_nothing_is_kept_that_no_verb_has() -> None:
    named = {argument.name for found in TABLE.values() for argument in found.arguments}
    assert set(MEANINGS) == named
    types = {argument.type for found in TABLE.values() for argument in found.arguments}
    assert set(values.FORMS) == types | {found.returns for found in TABLE.values()}


def test_no_other_module_of_the_faces_defines_a_verb() -> None:
    """Not even one more of a verb's name: whoever does the work has other words for it."""
    handier = {"send", "confirm", "confirm_notice"}
    for path in sorted((ROOT / "src/oncewire/entry").glob("*/*.py")):
        if path.parent.name not in ("control", "running") or path.name == "verbs.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or "Reload" in node.name:
                continue
            methods = {
                each.name for each in node.body if isinstance(each, ast.AsyncFunctionDef)
            } & set(TABLE)
            allowed = handier if node.name == "PartyFace" else set()
            assert methods <= allowed, f"{path.name}: {node.name} has {methods - allowed}"


# --- the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("found", EVERY)
def test_every_command_that_a_verb_names_is_there(found: Verb[..., Any]) -> None:
    for offer in found.commands:
        command = whole_command()
        for word in offer.name.split():
            assert word in command.commands, f"oncewire {offer.name}"
            command = command.commands[word]
        if isinstance(offer, Command):
            own = {"help", "json", "config"} | ({"yes"} if offer.asks else set())
            shown = {parameter.name for parameter in command.params} - own
            given = {argument.name for argument in found.arguments} - set(offer.fixed)
            assert shown == given, offer.name
            help_ = offer.help or found.help
            assert command.help.split() == help_.split(), offer.name


# --- Python ------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", EVERY)
def test_programs_have_every_verb_but_reload(found: Verb[..., Any]) -> None:
    """The handler of a program that opens a party takes changed files over by itself."""
    for party in (OpenParty, BlockingParty):
        assert hasattr(party, found.name) == (found.name != "reload")


@pytest.mark.parametrize("party", [OpenParty, BlockingParty])
@pytest.mark.parametrize("found", EVERYBODYS)
def test_help_shows_its_signature_and_its_words(found: Verb[..., Any], party: type) -> None:
    method = getattr(party, found.name)
    assert inspect.getdoc(method) == found.help
    assert str(inspect.signature(method)) == str(inspect.signature(found.body))
    assert inspect.iscoroutinefunction(method) == issubclass(party, Awaiting)
    shown = pydoc.plain(pydoc.render_doc(party))
    # Python 3.13 gives each argument of a long signature a line of its own.
    assert re.search(rf" {found.name}\([ |\n]*self", shown)
    assert found.help.partition("\n")[0] in shown


@pytest.mark.process
def test_types_are_those_of_the_definition(tmp_path: Path) -> None:
    """What an editor and a type checker see; each wrong line is found."""
    sample = tmp_path / "sample.py"
    sample.write_text(
        "from typing import assert_type\n"
        "from oncewire import BlockingParty, OpenParty, Outcome, ReceivedMessage\n"
        "async def use(party: OpenParty, blocking: BlockingParty) -> None:\n"
        "    assert_type(await party.wait('m', 5), Outcome | None)\n"
        "    assert_type(blocking.take(limit=5), list[ReceivedMessage])\n"
        "    blocking.hold('m', held=False)\n"
        "    blocking.hold(5)  # wrong\n"
        "    blocking.resume('m')  # wrong\n"
        "    await party.hold('m', kept=True)  # wrong\n"
        "    party.status()  # wrong\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    command += ["--config-file", str(ROOT / "pyproject.toml"), str(sample)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == {7, 8, 9, 10}, done.stdout + done.stderr


# --- the control socket ------------------------------------------------------------------------


@pytest.mark.parametrize("found", EVERY)
def test_the_socket_refuses_what_a_verb_does_not_take_by_name(found: Verb[..., Any]) -> None:
    frame = language.ControlFrame({"arguments": {"tiemout": 5}})
    with pytest.raises(InvalidValue, match=f"{found.name} has no argument 'tiemout'") as refused:
        values.read_request(found, frame)
    for argument in found.arguments:
        assert argument.name in refused.value.remedy


@pytest.mark.parametrize("found", [one for one in EVERY if one.values[0].arguments])  # type: ignore[union-attr]
def test_the_socket_refuses_what_is_missing_or_of_another_type(found: Verb[..., Any]) -> None:
    for argument in found.arguments:
        nonsense = {each.name: {"no": "value"} for each in found.arguments}
        with pytest.raises(InvalidValue, match=r" is no | has no field "):
            values.read_request(found, language.ControlFrame({"arguments": nonsense}))
        del nonsense[argument.name]
        if argument.required:
            with pytest.raises(InvalidValue, match=f"{argument.name} is missing"):
                values.read_request(found, language.ControlFrame({"arguments": nonsense}))


def test_bytes_that_belong_to_nothing_are_refused() -> None:
    with pytest.raises(InvalidValue, match="1 payloads that the arguments do not name"):
        values.read_request(TABLE["status"], language.ControlFrame({}, (b"stray",)))


def test_no_truth_is_a_number_and_what_is_too_much_is_cut() -> None:
    wait = TABLE["wait"]
    with pytest.raises(InvalidValue, match="timeout is no float: True"):
        values.read_request(
            wait, language.ControlFrame({"arguments": {"message_id": "m", "timeout": True}})
        )
    given = {"message_id": "m", "timeout": 99_999}
    cut = values.read_request(wait, language.ControlFrame({"arguments": given}))
    assert cut.arguments == {"message_id": "m", "timeout": 3600}


# --- one definition ----------------------------------------------------------------------------


def _heard(loud: bool, _sent: object) -> Told:
    return Told({"loud": loud}, "It hears.", good=loud)


class MoreVerbs:
    """A verb more, and nothing but its definition."""

    here: Any

    @verb(
        Need.STORE,
        Permission.OPERATE,
        Command("greet", "greeted", tell=_heard),
    )
    async def greet(self, reason: str, held: bool = False) -> bool:
        """Greet the party."""
        self.here.greeted = reason
        return held


class Doer(MoreVerbs, Performing):
    """Does it here."""

    def __init__(self) -> None:
        self.here, self.greeted = self, ""

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        return await method.body(self, *given.args, **given.kwargs)


class Waiter(MoreVerbs, Blocking):
    """Has it done in a loop of its own."""

    def _perform_blocking(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        return asyncio.run(Doer().perform(method, method.bound(args, kwargs)))


async def test_a_definition_is_all_that_a_verb_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (greet,) = verbs_of(MoreVerbs).values()
    monkeypatch.setitem(TABLE, "greet", greet)
    assert await asyncio.to_thread(Waiter().greet, "good morning", held=True) is True
    doer = Doer()
    server = ControlServer(tmp_path / "s.sock", doer)  # type: ignore[arg-type]
    await server.start()
    remote = await Remote.connect(tmp_path / "s.sock")
    assert remote is not None
    try:
        answer = await remote.perform(greet, greet.bind({"reason": "a new day"}))
        wrong = {"verb": "greet", "arguments": {"reason": "x", "lowd": 1}}
        with pytest.raises(InvalidValue, match="greet has no argument 'lowd'"):
            await remote._exchange(language.ControlFrame(wrong), "")
        assert (answer, doer.greeted) == (False, "a new day")
    finally:
        await remote.close()
        await server.stop()


def test_a_definition_is_a_command(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (greet,) = verbs_of(MoreVerbs).values()
    monkeypatch.setitem(TABLE, "greet", greet)
    app = typer.Typer()
    commands.register(app)
    shown = CliRunner().invoke(app, ["greet", "--help"])
    assert "Greet the party." in shown.stdout
    assert MEANINGS["reason"].help in shown.stdout
    words = ["greet", "--reason", "hello", "-c", str(pair / "acme"), "--json"]
    for more, exit_code in ((["--held"], 0), ([], 1)):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == exit_code, done.output
        assert json.loads(done.stdout)["summary"] == "Greeted. It hears."


def test_what_needs_a_handler_is_refused_at_rest() -> None:
    async def call(_self: object) -> None:
        """Call."""

    calling: Verb[[], None] = verb(Need.HANDLER, Permission.LOOK, NoCommand("a sample"))(call)
    store = OfflineStore(None)  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match="call needs a handler that runs"):
        asyncio.run(store.perform(calling, calling.bind({})))
    with pytest.raises(NotAllowed, match="needs a handler"):
        _ = store.handler


def test_arguments_are_found_as_inspect_finds_them() -> None:
    """Also those of a call that is like an earlier one, whose names are known."""
    found = TABLE["wait"]
    for _ in range(2):
        for args, kwargs in (
            (("m-1",), {}),
            (("m-1", 3.0), {}),
            (("m-1",), {"timeout": 3.0}),
            ((), {"timeout": 3.0, "message_id": "m-1"}),
        ):
            assert found.bound(args, kwargs) == found.signature.bind(*args, **kwargs)  # type: ignore[arg-type]
    for args, kwargs in (((), {}), (("m-1", 3.0, 4), {}), (("m-1",), {"message_id": "m-2"})):
        with pytest.raises(TypeError):
            found.bound(args, kwargs)  # type: ignore[arg-type]
