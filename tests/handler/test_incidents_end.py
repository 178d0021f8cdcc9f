"""Incidents whose cause ends are closed by it, and every cause of one says who ends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import StoreCorrupt, StoreDamaged, StoreFull, StoreGone
from oncewire.handler.perform import open_incident, way_key
from oncewire.message.instant import DAY, MINUTE
from oncewire.protocol.notes import Kind, Raise
from oncewire.protocol.states import OutgoingState
from tests.handler.network import Network, Stores, agreement_text
from tests.handler.receiving.test_unaddressed import unheard
from tests.handler.test_pause import SAID, TERMS, Busy
from tests.parts import ROOT

SOURCE = ROOT / "src" / "oncewire"
CALLS = {"open_incident", "Raise", "trouble", "call_operator", "_call_operator", "_call"}

SELF, PERSON = "ends by itself", "is ended by a person"
CAUSES: dict[str, tuple[str, str]] = {
    # Where it is opened: who ends it, and by what.
    "protocol/sending.py stop": (PERSON, "resume, abandon; or a late acknowledgement"),
    "protocol/sending.py fail": (PERSON, "resend, abandon; or a late acknowledgement"),
    "protocol/receiver.py _turn_away": (PERSON, "resume: the two sides count differently"),
    "handler/perform.py _leave": (SELF, "a probe gets through, or the way is not agreed any more"),
    "handler/perform.py _pause_receiver": (SELF, "the pause is over"),
    "handler/perform.py open_incident": (PERSON, "is the one that opens it"),
    "handler/perform.py perform_effects": (PERSON, "performs what the protocol raised"),
    "handler/receiving/receive.py repost_answers": (
        PERSON,
        "abandon: its answer is damaged",
    ),
    "handler/perform.py follow": (PERSON, "performs what the protocol raised"),
    "handler/receiving/release.py give_up_gaps": (SELF, "the message is handed over or sent on"),
    "handler/receiving/release.py survey": (SELF, "the message goes on; without an id, a restore"),
    "handler/receiving/release.py call_operator": (SELF, "by what the error is: see WHERE"),
    "handler/receiving/release.py _close": (PERSON, "resume makes the stream anew"),
    "handler/sending/respond.py respond": (PERSON, "abandon takes note: the response is not sent"),
    "handler/sending/answer.py call_operator": (SELF, "the agreement names an address"),
    "handler/perform.py withhold": (SELF, "the application confirms it"),
    "handler/delivering/notices.py withhold": (PERSON, "abandon takes note: nobody is told"),
    "handler/delivering/notices.py refuse": (SELF, "the application takes the notice"),
    "handler/runtime/engine.py refused": (SELF, "the application confirms it"),
    "handler/runtime/engine.py trouble": (SELF, "calls poison.call_operator"),
    "handler/runtime/engine.py commit": (SELF, "calls unaddressed.call_operator"),
    "handler/runtime/failures.py tell_failures": (PERSON, "abandon gives the damaged message up"),
    "handler/runtime/failures.py _report": (
        PERSON,
        "abandon: the From Party is not told",
    ),
    "handler/runtime/handler.py _post_answer": (PERSON, "abandon: its answer is damaged"),
    "handler/runtime/handler.py _call_operator": (SELF, "the store can be written again"),
    "handler/hub/next_hop.py go_on": (SELF, "an agreement leads on again"),
    "handler/runtime/upkeep.py join_at_once": (SELF, "the document is put together"),
    "handler/runtime/upkeep.py _join": (SELF, "the document is put together"),
    "handler/sending/transmit.py _admit_one": (PERSON, "resume makes the stream anew"),
    "handler/sending/transmit.py set_aside": (SELF, "the message goes on"),
    "handler/runtime/retention.py call_again": (SELF, "the clock is set right"),
    "handler/runtime/retention.py watch": (SELF, "calls _call_operator"),
    "handler/runtime/operate.py pause_channel": (PERSON, "resume: a person paused it"),
    "handler/runtime/operate.py abandon_message": (PERSON, "resume makes the stream anew"),
    "entry/running/serving.py _call": (SELF, "the file can be read, now or at a later start"),
    "entry/running/serving.py _tell": (SELF, "calls _call"),
    "entry/running/serving.py call": (SELF, "no partner was sent away for a while"),
    "entry/running/serving.py record_failure": (PERSON, "resume takes note: a fault of ours"),
}


def callers(tree: ast.AST, name: str = "") -> Iterator[str]:
    """The functions that open an incident, each by its own name."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else name
        if isinstance(node, ast.Call):
            called = node.func
            said = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if said in CALLS:
                yield inner
        yield from callers(node, inner)


def test_every_cause_of_an_incident_says_who_ends_it() -> None:
    found = {
        f"{file.relative_to(SOURCE)} {name}"
        for folder in ("protocol", "handler", "entry")
        for file in sorted((SOURCE / folder).rglob("*.py"))
        for name in callers(ast.parse(file.read_text()))
    }
    assert found == set(CAUSES)


def incidents(pair: Network, name: str = "alpha") -> list[tuple[str | None, str | None]]:
    with pair.engines[name].context.store.reader() as reader:
        return [(incident.message_id, incident.channel) for incident in reader.incidents()]


def test_the_incident_of_a_pause_ends_with_it() -> None:
    pair = Busy.pair("ebms2", f'{TERMS}persist_duration = "P1D"\n{SAID.removeprefix(TERMS)}')
    pair.send(1)
    pair.say_busy(1, 315_360_000)
    assert incidents(pair) == [(None, "to urn:test:beta")]
    pair.reachable = True
    pair.pass_time(DAY - 2 * MINUTE)
    assert incidents(pair) == [(None, "to urn:test:beta")]
    pair.pass_time(MINUTE)
    assert pair.state(1) is OutgoingState.DELIVERED
    pair.pass_time(2 * MINUTE)
    assert incidents(pair) == []
    assert pair.kinds("alpha").count(Kind.RESOLVED) == 1


def test_answers_that_have_an_address_again_need_nobody() -> None:
    pair = unheard()
    pair.send(1)
    pair.pass_time(2 * MINUTE)
    assert incidents(pair, "beta") == [(None, "handler answers to urn:test:alpha")]
    text = agreement_text("beta", "alpha", "ebms2", '[sync]\nmode = "none"\n')
    pair.beta.context.agreements = Agreements([read_toml(text)])
    pair.pass_time(2 * MINUTE)
    assert incidents(pair, "beta") == []


def test_a_way_that_is_not_agreed_any_more_is_nobodys_trouble() -> None:
    pair = Network.pair("ebms2")
    node = pair.alpha.context
    node.state.left |= {("urn:test:beta", "smtp"), ("urn:test:beta", "http")}
    for transport in ("smtp", "http"):
        with node.transition() as tx:
            key = way_key("urn:test:beta", transport)
            open_incident(node, tx, Raise("nothing gets across", channel=key))
    pair.settle("alpha")
    pair.pass_time(2 * MINUTE)
    assert incidents(pair) == [(None, "handler way http to urn:test:beta")]
    assert node.state.left == {("urn:test:beta", "http")}


WHERE = [
    (StoreFull("no space", remedy="free some"), "handler store"),
    (StoreGone("no disk", remedy="mount it"), "handler store"),
    (StoreCorrupt("malformed", remedy="restore it"), "handler damaged"),
    (StoreDamaged("a page cannot be read", remedy="restore it"), "handler damaged"),
    (StoreDamaged("a stream cannot be read", channel="c", remedy="restore it"), "c"),
]


@pytest.mark.parametrize(("problem", "channel"), WHERE)
def test_troubles_of_the_store_that_end_in_another_way_are_told_apart(
    problem: StoreFull | StoreGone | StoreDamaged, channel: str
) -> None:
    """One that is open must not swallow the other."""
    pair = Network.pair("ebms2")
    pair.alpha.trouble(StoreDamaged("the handler failed", channel="handler failed"))
    pair.alpha.trouble(problem)
    pair.settle("alpha")
    assert incidents(pair) == [(None, "handler failed"), (None, channel)]
    reason = pair.incidents()[-1].reason
    assert ("oncewire resume --channel 'handler damaged'" in reason) == ("damaged" in channel)


def test_a_message_that_was_put_back_while_the_handler_runs_goes_on_and_its_incident_ends(
    tmp_path: Path, on_disk: Stores
) -> None:
    pair = Busy.pair("ebms2", TERMS, store=on_disk)
    pair.send(1)
    disk = apsw.Connection(str(tmp_path / "alpha.db"))
    (row,) = disk.execute("SELECT * FROM outgoing_bytes").fetchall()
    disk.execute("DELETE FROM outgoing_bytes")
    disk.close()
    pair.crash("alpha")
    assert incidents(pair) == [("order-1@alpha", None)]
    disk = apsw.Connection(str(tmp_path / "alpha.db"))
    disk.execute(f"INSERT INTO outgoing_bytes VALUES ({', '.join('?' * len(row))})", row)
    disk.close()
    pair.reachable = True
    pair.pass_time(2 * MINUTE)
    pair.pass_time(2 * MINUTE)
    assert pair.state(1) is OutgoingState.DELIVERED
    assert incidents(pair) == []
    pair.close()
