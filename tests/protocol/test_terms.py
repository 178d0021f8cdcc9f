"""Terms: policies as data, refused where they are impossible or contradict each other."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from oncewire.errors import AgreementProblem, InvalidValue, OncewireError
from oncewire.message.form import AckRequest, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.instant import SECOND
from oncewire.protocol.sequence import RM_078_RANGE, SequenceRange
from oncewire.protocol.terms import (
    FlowMode,
    HeaderConflict,
    HopMode,
    OnGap,
    ReceiptProvided,
    ResetRule,
    RetryCount,
    Scope,
    Terms,
)
from tests.parts import ROOT
from tests.protocol.samples import ORDERED, PLAIN, STOP_AND_WAIT, TEN

SOURCE = ROOT / "src" / "oncewire"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"timeout": -1}, "timeout is negative"),
        ({"retry_interval": -1}, "retry_interval is negative"),
        ({"persist_duration": -1}, "persist_duration is negative"),
        ({"time_accuracy": -1}, "time_accuracy is negative"),
        ({"sync_timeout": -1}, "sync_timeout is negative"),
        ({"retries": -1}, "retries is negative"),
        ({"time_to_live": 0}, "time_to_live is not positive"),
        ({"max_size": 0}, "max_size is below 1"),
        ({"keep": -1}, "keep is negative"),
        ({"transports": ()}, "no transport"),
        ({"ordered": True}, "carry no numbers"),
        ({"numbered": True, "reliable": False, "window": 1}, "not reliable"),
        (
            {"numbered": True, "method": ReliableMessagingMethod.TRANSPORT},
            "not reliable",
        ),
        (
            {"numbered": True, "scope": Scope.TRIPLE, "transports": ("a", "b")},
            "may change their transport",
        ),
        ({"numbered": True, "on_gap": OnGap.REJECT}, "gaps are rejected"),
        (
            {"numbered": True, "reset": ResetRule.SILENT, "flow": FlowMode.WINDOW, "window": 2},
            "restarts are silent",
        ),
        ({"numbered": True, "reset": ResetRule.SILENT}, "restarts are silent"),
        ({"flow": FlowMode.WINDOW, "window": 0}, "smaller than 1"),
        (
            {"numbered": True, "flow": FlowMode.WINDOW, "window": 6, "numbers": TEN},
            "more than half",
        ),
    ],
)
def test_impossible_terms_are_refused_and_say_what_to_do(
    changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(OncewireError, match=says) as caught:
        replace(PLAIN, **changes)
    assert isinstance(caught.value, InvalidValue | AgreementProblem)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "name", [name for name, hint in Terms.__annotations__.items() if hint == "Duration"]
)
def test_no_duration_is_negative(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is negative"):
        Terms(**{name: -1})


def test_a_contradiction_names_the_key_to_change() -> None:
    with pytest.raises(AgreementProblem) as caught:
        replace(ORDERED, flow=FlowMode.WINDOW, on_gap=OnGap.REJECT)
    assert caught.value.key == "sequence.on_gap"


@pytest.mark.parametrize(
    ("terms", "window"),
    [
        (STOP_AND_WAIT, 1),
        (ORDERED, 4),
        (replace(ORDERED, flow=FlowMode.UNRESTRICTED), 5),
    ],
)
def test_the_window_follows_the_flow_mode(terms: Terms, window: int) -> None:
    assert terms.window_size == window


@pytest.mark.requirement("RM-7")
def test_the_protocol_runs_only_where_nobody_else_provides_it() -> None:
    assert PLAIN.runs_protocol
    assert not replace(PLAIN, reliable=False).runs_protocol
    assert not replace(PLAIN, method=ReliableMessagingMethod.TRANSPORT).runs_protocol


def test_the_longest_retry_is_counted_over_all_transports() -> None:
    terms = replace(PLAIN, timeout=10, retries=3, retry_interval=5, transports=("a", "b"))
    assert terms.longest_retry == 2 * (10 + 3 * 5)
    assert replace(terms, retries_counted=RetryCount.TOTAL).longest_retry == 10 + 3 * 5


# --- written and read back ----------------------------------------------------------------

UNUSUAL = Terms(
    numbered=True,
    ordered=True,
    flow=FlowMode.STOP_AND_WAIT,
    numbers=RM_078_RANGE,
    on_gap=OnGap.REJECT,
    reset=ResetRule.SILENT,
    ack_requested=AckRequest.SIGNED,
    receipt_provided=ReceiptProvided.SIGNED,
    hop_mode=HopMode.BY_REQUEST,
    header_conflict=HeaderConflict.REJECT,
    sync_mode=SyncReplyMode.RESPONSE_ONLY,
    transports=("http", "smtp"),
    time_to_live=5 * SECOND,
    max_size=100,
)


@pytest.mark.parametrize("terms", [Terms(), UNUSUAL, ORDERED])
def test_terms_are_read_back_as_they_were_written(terms: Terms) -> None:
    assert Terms.from_dict(terms.as_dict()) == terms


def test_equal_terms_have_one_id_and_every_value_counts() -> None:
    assert Terms().terms_id == Terms().terms_id
    ids = {Terms().terms_id}
    for name in Terms.__struct_fields__:
        value = getattr(UNUSUAL, name)
        if value != getattr(Terms(), name):
            written = {**UNUSUAL.as_dict(), name: Terms().as_dict()[name]}
            try:
                ids.add(Terms.from_dict(written).terms_id)
            except AgreementProblem:
                continue
    assert len(ids) > 6
    assert UNUSUAL.terms_id not in ids


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidValue, match="unknown field `colour`") as caught:
        Terms.from_dict({"colour": "red"})
    assert caught.value.remedy


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"'sideways' - at `\$.flow`"):
        Terms.from_dict({"flow": "sideways"})
    with pytest.raises(InvalidValue, match=r"at `\$.window`"):
        Terms.from_dict({"window": "8"})


def test_a_range_is_written_as_its_two_ends() -> None:
    assert replace(PLAIN, numbers=SequenceRange(2, 9)).as_dict()["numbers"] == [2, 9]


def test_whether_an_exchange_is_synchronous_is_decided_in_one_place() -> None:
    """Handler, agreement, checker and simulator ask the terms."""
    copies = re.compile(r"sync_mode is (?:not )?SyncReplyMode\.NONE")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if copies.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"protocol/terms.py"}
