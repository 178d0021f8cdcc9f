"""Finding messages at the command line and from programs, and one incident for one outage."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import shlex
from contextlib import aclosing
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.running.open_party import open_party, open_party_blocking
from oncewire.errors import InvalidValue, NotHere, UnknownMessage
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.parts import ROOT


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """An order."""
    file = tmp_path / "order-7.xml"
    file.write_text('<orders><order id="4711"/></orders>')
    return file


def _index(folder: Path, paths: str = '["//order/@id"]') -> None:
    agree(folder, {"payload.index": paths})


def _ids(*words: object) -> list[str]:
    return [one["message_id"] for one in run_json(*words)["messages"]]


def test_the_commands_of_the_page_are_understood(pair: Path) -> None:
    text = (ROOT / "docs" / "howto" / "finding.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (paths,) = re.findall(r"^index = (.*)$", text, re.MULTILINE)
    _index(pair, paths)
    place, *lines = block.splitlines()
    assert place == "cd acme"
    for line in lines:
        run(*shlex.split(line, comments=True)[1:])
    run("agreement", "check")


def test_a_message_is_found_by_all_that_is_known_of_it(pair: Path, document: Path) -> None:
    _index(pair)
    (sent,) = run_json("send", document, "--to", "globex", "--conversation", "talk-1")["messages"]
    found = sent["message_id"]
    run("send", document, "--to", "globex", "--message-id", "%_'; DROP TABLE outgoing; --%_%_%_")
    both = _ids("find")
    assert both[1] == found
    for words in (
        (found[3:11],), (found[:4],), ("talk-1",), ("--conversation", "talk-1"),
        ("--until", "2100-01-01", "--conversation", "talk-1", "--partner", "globex"),
    ):  # fmt: skip
        assert _ids("find", *words) == _ids("outbox", *_as_option(words)) == [found], words
    for words in (("4711",), ("--value", "4711"), ("--file", "order-7.xml"), ("order-7.xml",),
                  ("--partner", "globex", "--since", "1h"),
                  ("--state", "outstanding,unknown")):  # fmt: skip
        assert _ids("find", *words) == both, words
    for words in (("--since", "2100-01-01"), ("--value", "order-7.xml"), ("--state", "ready"),
                  ("%%%%%%%%",), ("--action", "Never"), ("nothing like it",)):  # fmt: skip
        assert _ids("find", *words) == []
    assert _ids("inbox", "--text", "4711") == []


def _as_option(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if words[0].startswith("--") else ("--text", *words)


def test_what_cannot_be_meant_is_refused(pair: Path) -> None:
    for words in (("--since", "1d", "--until", "2d"), ("--since", "yesterday"), ("-s", "lost"),
                  ("--json", "--csv")):  # fmt: skip
        assert run_json("find", *words, exit_code=output.BAD_INPUT)["problems"][0]["next"], words
    nobody = run_json("find", "--partner", "nobody", exit_code=output.NOT_FOUND)
    assert nobody["problems"][0]["next"] == "there are: globex"
    _index(pair, '["//order[1]/@id"]')
    wrong = run_json("agreement", "check", exit_code=output.WRONG)
    assert "//order[1]/@id" in str(wrong)
    assert "payload.index" in str(wrong)


def test_a_list_is_a_table_for_other_programs(pair: Path, document: Path) -> None:
    run("send", document, "--to", "globex", "--message-id", "=1+1", "--conversation", 'a,"b"')
    rows = list(csv.DictReader(io.StringIO(run("outbox", "--csv").stdout)))
    assert [(row["message_id"], row["to"], row["tries"]) for row in rows] == [
        ("'=1+1", "globex", "0")
    ]
    assert run("find", "--csv", "nothing").stdout.startswith("at,direction,message_id,")
    assert run("incidents", "--csv").stdout.startswith("id,opened,count,partner,")


def test_one_outage_is_one_incident_and_one_command_ends_it(served: Served, document: Path) -> None:
    served.stop("globex")
    for _ in range(4):
        sent = run_json("send", document, "--to", "globex", "--wait", exit_code=output.WRONG)
    (outage,) = run_json("incidents", exit_code=output.WRONG)["incidents"]
    assert (outage["count"], outage["partner"]) == (4, "globex")
    assert "nothing got across in 4 attempts; the last one: " in outage["problem"]
    assert "the last one: cannot connect to 127.0.0.1 port" in outage["problem"]
    told = run_json("incidents", exit_code=output.WRONG)
    assert told["next"] == ["oncewire resend --failed --to globex"]
    assert told["summary"] == "1 open, about 4 messages and channels."
    why = run_json("why", sent["messages"][0]["message_id"])["why"]
    assert "each of 4 attempts was in vain; attempt 4 failed: " in why
    served.start("globex")
    assert run_json("resend", "--failed", "--to", "globex")["resent"] == 4
    assert run_json("incidents")["incidents"] == []


def test_programs_have_every_verb_and_call_partners_by_name(pair: Path, document: Path) -> None:
    _index(folder := pair)

    async def work() -> None:
        async with open_party(folder / "globex") as there, open_party(folder / "acme") as party:
            assert await party.ping("globex", timeout=20)
            with pytest.raises(NotHere):
                await party.ping("nobody")
            waiting = asyncio.ensure_future(there.take(timeout=60))
            sent = await party.send("globex", document)
            (first,) = await waiting
            assert first.message_id == sent.message_id
            await there.confirm(first)
            more = [await party.send("globex", document) for _ in range(3)]
            async with aclosing(there.messages()) as coming:
                # Messages of different conversations come in any order.
                expected = {one.message_id for one in more}
                while expected:
                    message = await anext(coming)
                    expected.remove(message.message_id)
                    await there.confirm(message)
            page = await party.find(sent.message_id[4:12])
            assert [one.message_id for one in page.messages] == [sent.message_id]
            assert page.messages[0].partner == "globex"
            listed, after = [], None
            while after != "":
                part = await party.outbox(partner="globex", value="4711", limit=3, after=after)
                listed += [one.message_id for one in part.messages]
                after = part.after
            assert listed == [one.message_id for one in (*reversed(more), sent)]
            assert {one.state for one in (await there.inbox(since="1h")).messages} == {"confirmed"}
            story = await party.why(sent.message_id)
            assert story.why.startswith("Delivered")
            assert story.steps[0].what.startswith("submitted")
            assert await party.incidents() == []
            with pytest.raises(UnknownMessage):
                await party.why("nothing")
            with pytest.raises(InvalidValue):
                await party.find(after="1.2_3")

    with Served(folder, "acme", "globex"):
        asyncio.run(work())
        with open_party_blocking(folder / "acme") as party:
            assert len(party.outbox(partner="globex").messages) == 4
            assert party.take(timeout=0.01) == []


@pytest.mark.parametrize(
    "words", [("find", "\udcff\udcfe"), ("outbox", "--file", "\udcff"), ("hold", "\udcff")]
)
def test_bytes_that_are_no_utf_8_are_not_looked_for(
    pair: Path, document: Path, words: tuple[str, ...]
) -> None:
    run("send", document)
    assert run_json(*words, exit_code=output.BAD_INPUT)["problems"]
