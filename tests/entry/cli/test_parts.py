"""A document in parts, as listings show it: once, and its parts where somebody asks for them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from oncewire.entry.cli import finding, output
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.errors import InvalidValue, UnknownMessage
from oncewire.handler.sending.submit import HandedIn
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.protocol.states import IncomingState
from oncewire.store.contract import Reader
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.store.samples import facts, prepare, received

PARTS = 5


@pytest.fixture
def split(pair: Path) -> Iterator[Served]:
    """Both handlers run, and send what is larger than a kilobyte in parts."""
    change = {"payload.max_size": "1000", "wire.extensions": '["split"]'}
    agree(pair, change)
    with Served(pair, "acme", "globex") as found:
        yield found


def test_a_document_is_listed_once_and_its_parts_where_they_are_wanted(
    split: Served, tmp_path: Path
) -> None:
    file, there = tmp_path / "large.bin", split.folder / "globex"
    file.write_bytes(os.urandom(1000 * PARTS))
    sent = run_json("send", file, "--to", "globex", "--wait", "--timeout", "60")["messages"][0]
    # Its parts are tried, and not the document.
    assert (sent["state"], sent["tries"]) == ("delivered", None)
    name = sent["message_id"]
    parts = {f"{number}-of-{PARTS}.{name}" for number in range(1, PARTS + 1)}
    for box, side, state in (("outbox", (), "delivered"), ("inbox", ("-c", there), "ready")):
        found = run_json(box, *side)
        assert [one["message_id"] for one in found["messages"]] == [name]
        assert found["summary"] == f"1 {state}."
        assert found["messages"][0].get("tries") is None
        found = run_json(box, "--parts", *side)
        assert {one["message_id"] for one in found["messages"]} == {name} | parts
        own = "delivered" if box == "outbox" else "confirmed"
        assert found["summary"] == f"1 {state}. Of parts of documents: {PARTS} {own}."
        assert len(run_json(box, "--parts", "--limit", "3", *side)["messages"]) == 3


def test_what_cannot_be_split_is_refused_before_anybody_reads_it(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte is not copied for minutes to be told what the agreement said from the first."""
    agree(pair, {"payload.max_size": "1000"}, "acme")
    file = tmp_path / "large.bin"
    with file.open("wb") as sparse:
        sparse.truncate(SPOOL_ABOVE * 4)
    monkeypatch.delattr(HandedIn, "read")
    found = run_json("send", file, "--to", "globex", exit_code=output.BAD_INPUT)
    (refused,) = found["problems"]
    assert refused["problem"].startswith(f"payload large.bin has {SPOOL_ABOVE * 4:,} bytes")
    assert "no more than 1,000 are agreed" in refused["problem"]
    assert "payload.max_size" in refused["next"]
    with (
        open_party_blocking(pair / "acme") as party,
        pytest.raises(InvalidValue, match="no more than 1,000 are agreed"),
    ):
        party.send("globex", file)
    assert run_json("outbox")["messages"] == []


def test_what_is_said_of_a_document_is_said_of_it_and_not_of_its_parts(
    split: Served, tmp_path: Path
) -> None:
    file, there = tmp_path / "large.bin", split.folder / "globex"
    file.write_bytes(os.urandom(1000 * PARTS))
    name = run_json("send", file, "--to", "globex", "--wait")["messages"][0]["message_id"]
    assert "Delivered in parts" in run("why", name).stdout
    shown = run_json("show", name)
    assert (shown["parts"], shown["parts_acknowledged"]) == (PARTS, PARTS)
    assert (shown["attempts"], shown["first_sent"] <= shown["acknowledged"]) == (PARTS, True)
    # The file's own, to be compared with what `sha256sum` prints; the other tells messages apart.
    (document,) = shown["documents"]
    assert document["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert run_json("show", name, "-c", there)["documents"] == shown["documents"]
    # What a part carries is nobody's file.
    assert run_json("show", f"2-of-{PARTS}.{name}")["documents"][0]["sha256"] == ""
    (hop,) = shown["trail"]
    assert (hop["attempts"], hop["sent"]) == (PARTS, shown["first_sent"])
    # What was received was tried by somebody else, who alone knows how often.
    received = run_json("show", name, "-c", there)
    assert (received["parts"], received["attempts"]) == (PARTS, None)
    # What was joined came as no message, so it has no identity of one.
    assert received["identity_digest"] is None
    assert any("outbox --parts" in hint for hint in shown["next"])
    assert "parts" not in run_json("show", f"2-of-{PARTS}.{name}")
    # Its receiver has it whole, and says so.
    (asked,) = run_json("ask", name)["done"]
    assert (asked["what"], asked["answer"]) == (name, "Received")
    # What has no message to show says where to look.
    for command in (("show", "--raw", name), ("show", "--raw", name, "-c", there)):
        refused = run(*command, exit_code=None)
        assert refused.exit_code != 0
        said = refused.stdout + refused.stderr
        assert "document" in said
        assert "parts" in said
    raw = tmp_path / "part.bin"
    run("show", "--raw", f"2-of-{PARTS}.{name}", "--output", raw)
    decoded = run("message", "decode", raw).stdout
    assert f"2 of {PARTS}" in decoded or name in decoded
    steps = run_json("why", name, "--with", there)["ladder"]
    assert any("joined" in step["what"] for step in steps)
    # Any part of an id will do: its own means the document, more than that a part of it.
    assert run_json("why", name[:-1])["message_id"] == name
    assert run_json("why", "3-of-")["message_id"] == f"3-of-{PARTS}.{name}"
    assert run_json("status")["out.delivered"] == 1
    run("inbox", "take", "--output", tmp_path / "in", "-c", there)
    assert run_json("status", "-c", there)["in.confirmed"] == 1
    found = run_json("verify", there)
    assert (found["messages"], found["parts"]) == (1, PARTS)
    assert f"1 message and {PARTS} parts of documents" in found["summary"]
    # One word for one thing: whoever looks at what is kept counts the same.
    for place in (split.folder / "acme", there):
        copy = run_json("backup", tmp_path / f"copy-{place.name}", "-c", place)
        assert copy["kept"] == run_json("status", "-c", place)["kept"] == 1
        assert copy["summary"].endswith("is whole: 1 message is kept in it.")


def test_each_payload_has_the_digest_of_its_file(served: Served, tmp_path: Path) -> None:
    files = [tmp_path / "order.xml", tmp_path / "empty.txt", tmp_path / "large.bin"]
    for file, data in zip(files, (b"<order/>", b"", os.urandom(SPOOL_ABOVE + 1)), strict=True):
        file.write_bytes(data)
    sent = run_json("send", *files, "--to", "globex", "--wait")["messages"][0]["message_id"]
    for side in ((), ("-c", served.folder / "globex")):
        shown = run_json("show", sent, *side)
        assert [one["file_name"] for one in shown["documents"]] == [file.name for file in files]
        assert [one["sha256"] for one in shown["documents"]] == [
            hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        ]
        assert len(shown["identity_digest"]) == 64
        assert "digest" not in shown


def test_what_is_gathered_of_a_document_is_no_message_wherever_one_looks(
    pair: Path, tmp_path: Path
) -> None:
    store = SqliteStore(pair / "acme" / "data" / "oncewire.db", node="acme")
    prepare(store)
    with store.transition() as tx:
        for number in (1, 2):
            split = facts(split_id="doc", split_number=number, split_total=3)
            part = received(f"part{number}", state=IncomingState.GATHERED)
            tx.add_incoming(replace(part, facts=split))
    store.commit()
    store.close()
    found = run_json("inbox")
    assert found["messages"] == []
    assert found["summary"] == "2 parts wait for the rest of their documents: --parts shows them."
    found = run_json("inbox", "--parts")
    assert len(found["messages"]) == 2
    assert found["summary"] == "Of parts of documents: 2 gathered."
    found = run_json("status")
    assert (found["kept"], found["in.gathered"], found["parts"]) == (0, 0, 2)
    assert run_json("backup", tmp_path / "copy")["kept"] == 0


def test_parts_that_cannot_leave_are_told_with_the_command_that_tries_again(
    pair: Path, tmp_path: Path
) -> None:
    change = {
        "payload.max_size": "1000",
        "wire.extensions": '["split"]',
        "delivery.retry_interval": '"PT10M"',
        "delivery.timeout": '"PT10M"',
    }
    agree(pair, change)
    with Served(pair, "acme") as served:
        _parts_are_tried_again(served, tmp_path)


def _parts_are_tried_again(split: Served, tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(os.urandom(1000 * PARTS))
    name = run_json("send", file, "--to", "globex")["messages"][0]["message_id"]
    for _ in range(600):
        told = run("why", name).stdout
        if "5 parts failed" in told:
            break
        time.sleep(0.1)
    words = " ".join(told.split())
    shown = run_json("show", name)
    (hop,) = shown["trail"]
    assert (shown["reason"], shown["parts_acknowledged"]) == ("waiting", 0)
    assert shown["attempts"] == hop["attempts"] == PARTS
    assert hop["standing"] == f"in {PARTS} parts, 0 acknowledged"
    assert "Under way: it travels in parts: 0 of 5 parts are there (0 %); 5 parts failed" in words
    assert f"`oncewire resume {name}` tries now" in words
    # A part alone is told alike.
    assert f"`oncewire resume 2-of-5.{name}` tries now" in " ".join(
        run("why", f"2-of-5.{name}").stdout.split()
    )
    split.start("globex")
    run("resume", name)
    for _ in range(600):
        if "Delivered" in run("why", name).stdout:
            break
        time.sleep(0.1)
    assert "Delivered in parts" in run("why", name).stdout


def test_a_document_that_is_not_whole_yet_is_told_by_its_id() -> None:
    class Gathering:
        """A receiver that has two of five parts, whatever its sender calls them."""

        def journal_of(self, _: str) -> list[object]:
            return []

        def incoming_list(self, *, limit: int) -> list[object]:
            facts = SimpleNamespace(split_id="doc@acme", split_total=5, split_number=1)
            part = SimpleNamespace(incoming=SimpleNamespace(message_id="part-x"), facts=facts)
            return [part, part][:limit]

    with pytest.raises(UnknownMessage, match="not whole here: 2 of 5 parts are"):
        finding.find_id(cast("Reader", Gathering()), "doc@acme")


def test_a_state_in_which_nothing_is_is_told_so(split: Served, tmp_path: Path) -> None:
    file = tmp_path / "small.txt"
    file.write_text("7 boxes")
    run("send", file, "--to", "globex", "--wait")
    assert "Nothing is outstanding; in all:" in run("outbox", "--state", "outstanding").stdout
    there = split.folder / "globex"
    assert "Nothing is held; in all:" in run("inbox", "--state", "held", "-c", there).stdout
