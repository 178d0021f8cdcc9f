"""Whether a journal is as it was taken in: no row of a store, or of a lake, changes unnoticed.

And that directories which are written together hold the same rows.
"""

import shutil
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oncewire.entry.cli import output
from oncewire.entry.party.folder import KeyKind, make_keys
from oncewire.entry.party.settings import load
from oncewire.errors import JournalProblem
from oncewire.journal import identity
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.lake import compact, proof
from oncewire.pipeline.lake.compact import compacted
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.proof import is_signed_by, sign_version
from oncewire.pipeline.lake.version import Entry, NodeState, Version, parquet_files
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.wire.security.algorithms import SigningKey
from oncewire.wire.security.certificates import load_certificate
from tests.entry.terminal import run, run_json
from tests.pipeline.books import make_export, make_store, small_year, take_in_here

pytestmark = pytest.mark.long

ROWS = small_year()[1]["globex"]
NOW = 1_790_000_000_000_000


def taken_in(lake: Lake, book: Path) -> None:
    with lake.writing() as version:
        lake.publish(take_in_here(lake, version, book))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "globex.db", "globex", ROWS[:200])


@pytest.fixture
def lake(tmp_path: Path, store: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    taken_in(made, store)
    make_store(store, "globex", ROWS[200:300])
    taken_in(made, store)
    return made


def of(node: str, rows: list[Row]) -> list[Row]:
    return [row._replace(node=node) for row in rows]


def changed(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement)


def found(lake: Lake, store: Path) -> list[tuple[int, str]]:
    told = proof.check_book(lake, lake.current(), open_book(store))
    return [(one.seq, one.what) for one in told.differences]


def test_what_is_as_it_was_is_proven(lake: Lake, store: Path) -> None:
    version = lake.current()
    assert proof.check_lake(lake, version) == proof.Proven(300, 2, ())
    assert proof.check_book(lake, version, open_book(store)) == proof.Proven(300, 2, ())


def test_a_row_that_was_altered_after_it_was_taken_in_is_named(lake: Lake, store: Path) -> None:
    changed(store, "UPDATE journal_row SET at = at + 1 WHERE seq = 77")
    told = proof.check_book(lake, lake.current(), open_book(store)).differences
    assert [(one.node, one.seq, one.what) for one in told] == [("globex", 77, "changed")]
    assert told[0].sentence.endswith("has another at")


def test_a_row_that_was_taken_away_is_named_and_a_trimmed_one_is_not(
    lake: Lake, store: Path
) -> None:
    changed(store, "DELETE FROM journal_row WHERE seq = 120 OR seq <= 40")
    assert found(lake, store) == [(120, "gone")]


def test_rows_that_came_since_are_no_difference(lake: Lake, store: Path) -> None:
    make_store(store, "globex", ROWS[300:350])
    assert found(lake, store) == []


def test_a_lake_that_was_edited_is_told(lake: Lake) -> None:
    entry = lake.current().journal[1]
    (file,) = parquet_files(lake.root / entry.path)
    values = pq.read_table(file).to_pylist()
    values[5]["digest"] = "another"
    schema = pq.read_schema(file)
    pq.write_table(type(pq.read_table(file)).from_pylist(values, schema=schema), file)
    told = proof.check_lake(lake, lake.current())
    assert [(one.seq, one.what) for one in told.differences] == [(201, "rewritten")]
    assert not told.unchanged


def test_a_journal_of_which_nothing_is_believed_is_taken_in(tmp_path: Path) -> None:
    book = make_export(tmp_path / "globex", "globex", [ROWS[0]._replace(kind="invented")])
    lake = Lake(tmp_path / "lake")
    taken_in(lake, book)
    assert (lake.current().rows("journal"), lake.current().rows("quarantine")) == (0, 1)


def test_rows_that_were_set_aside_are_proven_too(tmp_path: Path) -> None:
    rows = [row._replace(kind="invented") if row.seq == 9 else row for row in ROWS[:60]]
    book = make_export(tmp_path / "globex", "globex", rows)
    lake = Lake(tmp_path / "lake")
    taken_in(lake, book)
    assert lake.current().rows("quarantine") == 1
    assert proof.check_lake(lake, lake.current()).unchanged
    assert proof.check_book(lake, lake.current(), open_book(book)).unchanged


# --- the chain that a node keeps ---------------------------------------------------------------


def chained_anew(store: Path, since: int) -> None:
    """As somebody would who knows of the chain: every head behind a row is made again."""
    with sqlite3.connect(store) as connection:
        columns = ", ".join(COLUMNS)
        rows = connection.execute(
            f"SELECT {columns} FROM journal WHERE seq >= ? ORDER BY seq",
            (since,),
        ).fetchall()
        (head,) = connection.execute(
            "SELECT since FROM journal_row WHERE seq = ?", (since,)
        ).fetchone()
        heads = identity.links(head, rows)
        connection.executemany(
            "UPDATE journal_row SET since = ? WHERE seq = ?",
            [(each, row[0]) for each, row in zip(heads, rows, strict=False)],
        )
        connection.execute("UPDATE counter SET head = ?", (heads[-1],))


def test_the_lake_carries_the_heads_that_the_node_kept(lake: Lake, store: Path) -> None:
    version = lake.current()
    first, second = version.journal
    assert (first.since, first.chain) == ("", second.since)
    assert version.nodes["globex"].chain == second.chain == open_book(store).head(300)
    assert identity.last_head(identity.START, ROWS[:300]).hex() == second.chain


def test_a_store_is_proven_by_its_heads_alone(lake: Lake, store: Path) -> None:
    for entry in lake.current().journal:
        for file in parquet_files(lake.root / entry.path):
            file.unlink()
    assert found(lake, store) == []


def test_whoever_chains_an_altered_store_anew_is_told_by_the_lake(lake: Lake, store: Path) -> None:
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 150")
    chained_anew(store, 150)
    assert found(lake, store) == [(150, "changed")]
    make_store(store, "globex", ROWS[300:310])
    with pytest.raises(JournalProblem, match="another chain"):
        taken_in(lake, store)


def test_a_row_that_was_altered_before_it_was_taken_in_is_told(lake: Lake, store: Path) -> None:
    make_store(store, "globex", ROWS[300:400])
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 350")
    assert found(lake, store) == [(301, "unchained")]
    taken_in(lake, store)
    make_store(store, "globex", ROWS[400:420])
    taken_in(lake, store)
    told = proof.check_lake(lake, lake.current()).differences
    assert [(one.seq, one.what) for one in told] == [(301, "unchained")]
    # Nothing has changed since.
    assert found(lake, store) == []


def test_a_trimmed_store_is_proven_from_where_it_begins(lake: Lake, store: Path) -> None:
    changed(store, "DELETE FROM journal_row WHERE seq <= 120")
    assert found(lake, store) == []
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 150")
    chained_anew(store, 121)
    assert found(lake, store) == [(150, "changed")]


def test_a_store_that_was_trimmed_to_its_end_goes_on(lake: Lake, store: Path) -> None:
    changed(store, "DELETE FROM journal_row")
    assert found(lake, store) == []
    taken_in(lake, store)
    make_store(store, "globex", ROWS[300:310])
    taken_in(lake, store)
    assert lake.current().rows("journal") == 310
    assert proof.check_lake(lake, lake.current()).unchanged


def test_a_restored_copy_is_told_and_what_it_writes_then_is_another_chain(
    tmp_path: Path, store: Path
) -> None:
    lake, backup = Lake(tmp_path / "lake"), tmp_path / "backup.db"
    taken_in(lake, store)
    shutil.copy(store, backup)
    make_store(store, "globex", ROWS[200:300])
    taken_in(lake, store)
    assert found(lake, backup) == [(200, "cut_off")]
    others = [row._replace(peer="nobody") for row in ROWS[200:280]]
    make_store(backup, "globex", [*others, *ROWS[280:300], *ROWS[300:310]])
    assert {what for _, what in found(lake, backup)} == {"changed"}
    with pytest.raises(JournalProblem, match="another chain"):
        taken_in(lake, backup)


def test_a_store_that_began_to_chain_its_rows_late_is_proven_on_both_sides(tmp_path: Path) -> None:
    store, lake = make_store(tmp_path / "globex.db", "globex", ROWS[:100]), Lake(tmp_path / "lake")
    changed(store, "UPDATE journal_row SET since = NULL")
    changed(store, "UPDATE counter SET head = NULL")
    make_store(store, "globex", ROWS[100:200])
    taken_in(lake, store)
    version = lake.current()
    assert [(entry.first, entry.since) for entry in version.journal] == [(1, ""), (101, "")]
    assert proof.check_lake(lake, version).unchanged
    assert found(lake, store) == []
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq IN (50, 150)")
    assert found(lake, store) == [(50, "changed"), (150, "changed")]


def test_another_lake_takes_the_chain_over(lake: Lake, tmp_path: Path) -> None:
    second = Lake(tmp_path / "second")
    taken_in(second, lake.root)
    version = second.current()
    assert version.nodes["globex"].chain == lake.current().nodes["globex"].chain
    assert proof.check_lake(second, version).unchanged


def test_a_store_of_before_the_chain_is_proven_row_by_row(tmp_path: Path) -> None:
    store, lake = make_store(tmp_path / "globex.db", "globex", ROWS[:100]), Lake(tmp_path / "lake")
    changed(store, "ALTER TABLE journal_row DROP COLUMN since")
    taken_in(lake, store)
    assert lake.current().nodes["globex"].chain == ""
    assert found(lake, store) == []
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 50")
    assert found(lake, store) == [(50, "changed")]


# --- signed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KeyKind))
def test_a_signed_version_is_its_signers_word(lake: Lake, tmp_path: Path, kind: KeyKind) -> None:
    own, others = (make_keys(tmp_path, name, now=NOW, kind=kind) for name in ("own", "others"))
    version = lake.current()
    certificate, stranger = (
        load_certificate(files.certificate.read_bytes()) for files in (own, others)
    )
    with pytest.raises(JournalProblem, match="is not signed"):
        is_signed_by(lake, version, certificate)
    key = load_pem_private_key(own.key.read_bytes(), None)
    beside = sign_version(lake, version, cast(SigningKey, key))
    assert is_signed_by(lake, version, certificate)
    assert not is_signed_by(lake, version, stranger)
    file = beside.with_suffix(".json")
    file.write_text(file.read_text().replace(version.nodes["globex"].chain, "0" * 64))
    assert not is_signed_by(lake, version, certificate)
    beside.write_text("{}")
    with pytest.raises(JournalProblem, match="is no signature"):
        is_signed_by(lake, version, certificate)


def test_a_signature_goes_with_its_version(
    lake: Lake, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(replace(lake.current(), readable_for=0.0))
    key = make_keys(tmp_path, "own", now=NOW, kind=KeyKind.EC).key
    secret = load_pem_private_key(key.read_bytes(), None)
    beside = sign_version(lake, lake.current(), cast(SigningKey, secret))
    for start in range(300, 330, 10):
        make_store(store, "globex", ROWS[start : start + 10])
        taken_in(lake, store)
    assert not beside.exists()


def test_the_commands_sign_and_prove(lake: Lake, store: Path, tmp_path: Path) -> None:
    run("init", tmp_path / "acme")
    here = ("--lake", lake.root, "--store", store)
    certificate = ("--certificate", tmp_path / "acme" / "keys" / "acme.crt")
    said = run_json("pipeline", "prove", *here)
    assert said["unchanged"]
    assert said["heads"] == {"globex": lake.current().nodes["globex"].chain}
    run("pipeline", "prove", *here, *certificate, exit_code=output.BAD_INPUT)
    run("pipeline", "sign", "--lake", lake.root, "--config", tmp_path / "acme")
    assert run_json("pipeline", "prove", *here, *certificate)["signed"]
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 50")
    said = run_json("pipeline", "prove", *here, *certificate, exit_code=output.WRONG)
    assert [one["what"] for one in said["differences"]] == ["changed"]


def test_a_party_removes_from_its_journal_what_the_lake_has(tmp_path: Path) -> None:
    run("init", tmp_path / "acme")
    settings = load(tmp_path / "acme").settings
    node, path = settings.party.name, settings.path(settings.store.path)
    store = make_store(path, node, of(node, ROWS[:100]))
    lake = Lake(tmp_path / "lake")
    trim = ("pipeline", "trim", "--lake", lake.root, "--config", tmp_path / "acme", "--keep")
    assert "no lake" in run(*trim, "1d", exit_code=None).stderr
    taken_in(lake, store)
    make_store(store, node, of(node, ROWS[100:120]))
    assert run_json(*trim, "2001-01-01")["rows"] == 0
    assert run_json(*trim, "1d")["rows"] == 100, "the lake has no more of them"
    assert found(lake, store) == []
    taken_in(lake, store)
    assert lake.current().rows("journal") == 121
    changed(store, "UPDATE journal_row SET peer = 'nobody' WHERE seq = 110")
    refused = run(*trim, "1d", exit_code=None)
    assert "does not have the rows" in refused.stderr
    assert open_book(store).bounds()[0] == 101


# --- written together -------------------------------------------------------------------------


def test_many_small_directories_become_few_with_the_same_rows(tmp_path: Path) -> None:
    lake, store = Lake(tmp_path / "lake"), tmp_path / "globex.db"
    step = 10
    for start in range(0, 200, step):
        make_store(store, "globex", ROWS[start : start + step])
        taken_in(lake, store)
    with lake.writing() as before:
        # Gold knows them, or they would be taken for new.
        nodes = {name: replace(state, folded=state.seq) for name, state in before.nodes.items()}
        before = replace(before, nodes=nodes)
        version = lake.publish(compacted(lake, before))
    assert [len(before.tables[name]) for name in ("journal", "boots")] == [20, 20]
    (entry,) = version.journal
    assert (entry.first, entry.last, entry.rows) == (1, 200, 200)
    assert len(version.tables["messages"]) == 1
    assert version.rows("messages") == before.rows("messages")
    assert list(proof.rows_in(lake, entry)) == ROWS[:200]
    assert proof.check_lake(lake, version).unchanged
    assert proof.check_book(lake, version, open_book(store)).unchanged
    assert compacted(lake, version) == version
    with lake.writing():
        pass
    make_store(store, "globex", ROWS[200:210])
    taken_in(lake, store)
    assert lake.current().rows("journal") == 210


def test_a_journal_that_grows_by_little_has_few_directories_and_what_is_large_is_not_written_again(
    tmp_path: Path,
) -> None:
    lake, store = Lake(tmp_path / "lake"), tmp_path / "globex.db"
    ends = [150, *range(152, 202, 2)]
    counts = []
    for start, end in pairwise([0, *ends]):
        make_store(store, "globex", ROWS[start:end])
        taken_in(lake, store)
        with lake.writing() as before:
            nodes = {name: replace(state, folded=state.seq) for name, state in before.nodes.items()}
            version = lake.publish(compacted(lake, replace(before, nodes=nodes)))
        counts.append(len(version.journal))
    assert max(counts) < 2 * compact.FEW < compact.MANY
    in_order = sorted(version.journal, key=lambda entry: entry.first)
    assert (in_order[0].first, in_order[0].last) == (1, 150)
    assert [row for entry in in_order for row in proof.rows_in(lake, entry)] == ROWS[:200]
    assert proof.check_lake(lake, version).unchanged
    assert proof.check_book(lake, version, open_book(store)).unchanged


def test_a_range_that_gold_does_not_know_is_left_alone(lake: Lake) -> None:
    version = lake.current()
    assert compacted(lake, version, many=2).journal == version.journal


def test_verify_reports_rows_that_are_unchained_and_does_not_call_the_lake_clean() -> None:
    from oncewire.entry.cli.output import OK, WRONG
    from oncewire.entry.cli.pipeline import report_of_check
    from oncewire.pipeline.judging.check import Verification

    kept = NodeState(20, 5, "boot-1", chain="cc")
    entries = (
        Entry("a", 10, "acme", 1, 10, chain="aa"),
        Entry("b", 10, "acme", 11, 20, since="bb"),
    )
    version = Version(tables={"journal": entries}, nodes={"acme": kept})
    found = Verification(rows=20, nodes=1, messages=4, unchained=tuple(proof.unchained(version)))
    assert [(one.what, one.seq) for one in found.unchained] == [(proof.UNCHAINED, 1)]
    told = report_of_check(found, json=False)
    assert told.exit_code == WRONG
    assert told.facts["unchained"] == 1
    assert "unchained" in told.summary
    assert any("rows 1 to 10" in str(listing.rows) for listing in told.listings)
    assert report_of_check(Verification(20, 1, 4), json=False).exit_code == OK
