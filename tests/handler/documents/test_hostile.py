"""Fragments and parts of a partner who names, calls and mixes them as nobody should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.message.envelope import TRIAL_MARK, TRIAL_SERVICE, SequenceNumber, Split
from oncewire.message.form import Extension
from oncewire.message.instant import HOUR
from oncewire.protocol.states import OutgoingState
from tests.handler import network as pair_module
from tests.handler.documents.test_bounds import refusals
from tests.handler.documents.test_fragments import HL7, PROFILE, Spine
from tests.handler.documents.test_life import DATA, EBMS2, sent, submit, taken
from tests.handler.network import Network, agreement_text


@pytest.fixture
def spine() -> Spine:
    return Spine.pair(PROFILE)


@pytest.mark.requirement("BIG-6")
def test_a_document_that_is_called_like_a_reference_is_refused_and_not_lost() -> None:
    pair = Network.pair("ebms2", EBMS2)
    submit(pair, DATA, message_id="mid:doc@alpha")
    assert taken(pair) == []
    assert sent(pair)["mid:doc@alpha"].outgoing.state is OutgoingState.NOT_DELIVERED
    assert [notice.message_id for notice in pair.notices] == ["mid:doc@alpha"]


def test_an_index_that_is_called_like_a_reference_is_refused(spine: Spine) -> None:
    spine.fragment("F1", b"data")
    assert spine.index("mid:doc", "F1") == ""
    assert spine.index("mid:doc", "F1") == ""
    assert "begins like a reference" in refusals(spine)
    assert spine.index("doc", "F1") == "Acknowledgment"
    assert [given.message_id for given in taken(spine)] == ["doc"]
    # What is no document may be called so.
    assert spine.fragment("mid:plain", b"data", action="Other") == "Acknowledgment"
    assert [given.message_id for given in taken(spine)] == ["mid:plain"]


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize("index_first", [True, False])
def test_a_fragment_of_another_conversation_is_not_joined(spine: Spine, index_first: bool) -> None:
    steps: list[Callable[[], str]] = [
        lambda: spine.index("doc", "F1"),
        lambda: spine.fragment("F1", b"data"),
    ]
    first, second = steps if index_first else reversed(steps)
    assert first() == "Acknowledgment"
    header = replace(spine.plain.header, conversation_id="another")
    spine.plain = replace(spine.plain, header=header)
    assert second() == "Inconsistent"
    assert taken(spine) == []


def test_a_part_does_not_name_fragments_too() -> None:
    spine = Spine.pair(PROFILE, '[wire]\nextensions = ["split"]\n')
    (deal,) = spine.alpha.context.agreements
    assert Extension.SPLIT in deal.form.extensions
    spine.fragment("F1", b"data")
    header = spine.plain.header
    spine.plain = replace(spine.plain, header=replace(header, split=Split("both", 1, 2)))
    assert spine.index("doc", "F1") == "NotSupported"
    spine.plain = replace(spine.plain, header=header)
    assert spine.index("other", "F1") == "Acknowledgment"
    assert [given.message_id for given in taken(spine)] == ["other"]


def test_a_fragment_without_a_payload_is_refused(spine: Spine) -> None:
    assert spine.index("doc", "F1") == "Acknowledgment"
    assert spine._put("F1", "Any", (), ()) == "Inconsistent"
    assert taken(spine) == []


def test_no_business_hides_behind_a_trial_that_names_fragments(spine: Spine) -> None:
    spine.fragment("F1", b"data")
    header = spine.plain.header
    spine.plain = replace(spine.plain, header=replace(header, service=TRIAL_SERVICE))
    assert spine.index(f"{TRIAL_MARK}1", "F1") == ""
    assert taken(spine) == []


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize("index_first", [True, False])
@pytest.mark.parametrize("profile", ["nhs-forward-reliable", "ebms2"])
def test_what_was_begun_is_joined_though_its_agreement_is_replaced(
    spine: Spine, profile: str, index_first: bool
) -> None:
    steps: list[Callable[[], str]] = [
        lambda: spine.index("doc", "F1"),
        lambda: spine.fragment("F1", b"data"),
    ]
    first, second = steps if index_first else reversed(steps)
    assert first() == "Acknowledgment"
    other = read_toml(agreement_text("beta", "alpha", profile))
    spine.beta.context.agreements = Agreements([other])
    assert second() == "Acknowledgment"
    (given,) = taken(spine)
    assert [payload.data for payload in given.payloads] == [HL7.data, b"data"]
    # What is begun now is the application's, as was agreed.
    assert spine.index("next", "F2") == "Acknowledgment"
    assert spine.fragment("F2", b"data") == "Acknowledgment"
    assert {given.message_id for given in taken(spine)} == {"next", "F2"}
    spine.pass_time(HOUR)
    assert refusals(spine) == ""
    assert spine.verify(healed=False).clean


def test_in_a_numbered_stream_fragments_are_the_applications() -> None:
    spine = Spine.pair(
        "ebms2", '[payload]\nparts = "mid"\n[sequence]\nnumbered = true\nordered = true\n'
    )
    plain = spine.plain
    spine.plain = replace(plain, order=SequenceNumber(2))
    assert spine.fragment("F1", b"data") == "Acknowledgment"
    spine.plain = replace(plain, order=SequenceNumber(1))
    assert spine.index("doc", "F1") == "Acknowledgment"
    assert [given.message_id for given in taken(spine)] == ["doc", "F1"]


@pytest.mark.requirement("OPS-2", "BIG-6")
def test_a_question_is_not_answered_before_the_document_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair("ebms2", EBMS2, lose_answer=lambda number: True)
    monkeypatch.setattr(pair_module, "join_at_once", lambda engine, wanted: None)
    submit(pair, DATA[:2_500])
    last = "3-of-3.doc@alpha"
    pair.lose_answer = lambda number: False  # type: ignore[method-assign]
    pair.alpha.ask_status(last)
    pair.settle("alpha")
    assert sent(pair)[last].outgoing.state is OutgoingState.OUTSTANDING
    # Of the others it can be told what became of them.
    pair.alpha.ask_status("1-of-3.doc@alpha")
    pair.settle("alpha")
    assert sent(pair)["1-of-3.doc@alpha"].outgoing.state is OutgoingState.DELIVERED
