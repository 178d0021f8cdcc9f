"""`oncewire upgrade`: what a newer version would change is said before it does."""

import gzip
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import complete_message
from oncewire.entry.party.partners import with_values
from oncewire.store.sqlite.connection import versions_at
from tests.entry.terminal import run, run_json, whole_command
from tests.parts import ROOT

KEPT = ROOT / "tests" / "store" / "kept" / "alpha.db.gz"


def test_a_store_of_an_earlier_version_is_brought_to_this_one(parties: Path) -> None:
    party = parties / "acme"
    file = party / "oncewire.toml"
    # The kept store is that of a node of this name.
    file.write_text(with_values(file.read_text(), {"party.name": '"alpha"'}))
    store = party / "data" / "oncewire.db"
    store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    before, newest = versions_at(store)
    assert before < newest
    said = run_json("upgrade", "--check")
    assert (said["version"], said["newest"]) == (before, newest)
    assert f"from version {before} to {newest}" in said["summary"]
    assert versions_at(store) == (before, newest)
    assert f"to {newest}" in run_json("upgrade")["summary"]
    assert versions_at(store) == (newest, newest)
    assert "the version of this Oncewire" in run_json("upgrade", "--check")["summary"]


def test_settings_that_cannot_work_are_named(parties: Path) -> None:
    file = parties / "acme" / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {"http.path": '"msh"'}))
    found = run_json("upgrade", "--check", exit_code=output.WRONG)
    assert [problem["where"] for problem in found["problems"]] == ["http.path"]


@pytest.mark.parametrize("damage", ["truncated", "random", "empty", "missing", "directory"])
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_a_store_that_cannot_be_used_is_named_as_serve_names_it(
    pair: Path, damage: str, check: tuple[str, ...]
) -> None:
    (order := pair / "order.txt").write_text("an order")
    run("send", order)
    store = pair / "acme" / "data" / "oncewire.db"
    whole = store.read_bytes()
    for file in store.parent.glob("oncewire.db*"):
        file.unlink()
    if damage == "directory":
        store.mkdir()
    elif damage != "missing":
        content = {"truncated": whole[:5000], "random": bytes(range(256)) * 80, "empty": b""}
        store.write_bytes(content[damage])
    served = run("serve", exit_code=None)
    found = run("upgrade", *check, exit_code=None)
    assert (found.exit_code, served.exit_code) == (output.TROUBLE, output.TROUBLE)
    assert "next:" in found.output + found.stderr


def test_the_shell_completes_message_ids(pair: Path) -> None:
    (order := pair / "order.txt").write_text("an order")
    (sent,) = run_json("send", order)["messages"]
    context = whole_command().commands["why"].make_context("why", ["x"])
    assert complete_message(context, sent["message_id"][:4]) == [sent["message_id"]]
    assert complete_message(context, "nothing-like-it") == []
