"""What an application hands in is refused by name, or arrives exactly as it was given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncewire.errors import InvalidValue
from oncewire.handler.actions import LIFETIME_MAX, Submission
from oncewire.handler.sending import submit
from oncewire.message.envelope import Payload
from oncewire.message.form import PAYLOADS_MAX
from oncewire.message.ids import Service
from tests.handler.network import Network

GOOD: dict[str, Any] = {
    "cpa_id": "alpha-beta",
    "service": Service("urn:test:orders"),
    "action": "New",
    "payloads": (Payload.of("order-1", "text/plain", b"order"),),
    "conversation_id": "talk",
    "message_id": "order-1@alpha",
    "ref_to_message_id": None,
    "time_to_live": None,
    "best_effort": False,
    "by": "orders-app",
}
PROFILES = ("ebms2", "window", "rm-0.78")
TEXTS = st.text(min_size=1, max_size=20) | st.text("ab %<>&\"'\t\u00a0\u2003é:@", min_size=1)


def test_every_field_is_tried() -> None:
    assert set(GOOD) == {*Submission.__struct_fields__}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpa_id", 5),
        ("cpa_id", ""),
        ("service", "urn:test:orders"),
        ("action", None),
        ("action", "\x00"),
        ("action", "x" * 256),
        ("conversation_id", ""),
        ("conversation_id", 7),
        ("by", ""),
        ("message_id", "\ud800"),
        ("message_id", ["a"]),
        ("ref_to_message_id", "a\nb"),
        ("time_to_live", True),
        ("time_to_live", -1),
        ("time_to_live", 0),
        ("time_to_live", 1.5),
        ("time_to_live", LIFETIME_MAX + 1),
        ("best_effort", "no"),
        ("best_effort", 1),
        ("best_effort", None),
        ("payloads", [Payload.of("a", "text/plain", b"")]),
        ("payloads", (b"bytes",)),
        ("payloads", (Payload("a", "text/plain", 1, "", None),)),
        ("payloads", (Payload("a", "text/plain", 2, "", b"1"),)),
        ("payloads", (Payload.of("a", "", b""),)),
        ("payloads", (Payload.of("a", "text/plain\r\nX-More: 1", b""),)),
        ("payloads", (Payload.of("a", " text/plain", b""),)),
        ("payloads", (Payload.of("payload ", "text/plain", b""),)),
        ("payloads", (Payload.of("a b", "text/plain", b""), Payload.of("a%20b", "text/xml", b""))),
    ],
)
def test_a_value_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        Submission(**{**GOOD, name: value})
    words = {"payloads": "payload"}
    assert words.get(name, name) in refused.value.problem
    assert refused.value.remedy


def test_text_is_no_content() -> None:
    with pytest.raises(InvalidValue, match="no bytes"):
        Payload.of("a", "text/plain", "text")  # type: ignore[arg-type]


def _arrives(profile: str, **values: Any) -> None:
    """It is refused where it is handed in, or the other application gets just that."""
    pair = Network.pair(profile)
    try:
        submission = Submission(**{**GOOD, **values})
        pair.alpha.submit(submission)
    except InvalidValue:
        return
    pair.settle("alpha")
    (taken,) = pair.beta.hand_over(5, 60_000_000)
    header = taken.header
    assert (header.action, header.conversation_id) == (
        submission.action,
        submission.conversation_id,
    )
    assert header.message_id == submission.message_id
    assert header.service == submission.service
    assert [(each.content_id, each.media_type, each.data) for each in taken.payloads] == [
        (each.content_id, each.media_type, each.data) for each in submission.payloads
    ]
    pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    assert pair.verify(healed=False).violations == ()


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
@given(name=st.sampled_from(["action", "conversation_id", "message_id"]), text=TEXTS)
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_an_id_arrives_as_it_was_given(profile: str, name: str, text: str) -> None:
    _arrives(profile, **{name: text})


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
@given(names=st.lists(TEXTS, max_size=3), media_type=TEXTS | st.sampled_from(["multipart/mixed"]))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_a_payload_arrives_as_it_was_given(profile: str, names: list[str], media_type: str) -> None:
    kind = media_type if "/" in media_type else f"text/plain; x={media_type}"
    try:
        payloads = tuple(Payload.of(name, kind, name.encode()) for name in names)
    except (InvalidValue, UnicodeEncodeError):
        return
    _arrives(profile, payloads=payloads)


@pytest.mark.parametrize("profile", PROFILES)
def test_as_many_payloads_as_are_taken_are_read(profile: str) -> None:
    many = tuple(
        Payload.of(f"part-{number}", "text/plain", b"%d" % number) for number in range(PAYLOADS_MAX)
    )
    with pytest.raises(InvalidValue, match="101 payloads, more than 100"):
        Submission(**{**GOOD, "payloads": (*many, Payload.of("more", "text/plain", b""))})
    _arrives(profile, payloads=many)
    # Long enough that it is read as it comes.
    large = Payload.of("large", "text/plain", bytes(2_000_000))
    _arrives(profile, payloads=(*many[1:], large))


def test_as_many_payloads_as_are_taken_wait_for_their_number() -> None:
    pair = Network.pair("window", extra="[flow]\nwindow = 1\n", lose_request=lambda post: True)
    pair.send(1)
    many = tuple(
        Payload.of(f"part-{number}", "text/plain", b"%d" % number) for number in range(PAYLOADS_MAX)
    )
    pair.alpha.submit(Submission(**{**GOOD, "message_id": "many@alpha", "payloads": many}))
    pair.settle("alpha")
    pair.lose_request = lambda post: False
    pair.pass_time()
    pair.pass_time()
    taken = pair.beta.hand_over(5, 60_000_000)
    assert [len(each.payloads) for each in taken] == [1, PAYLOADS_MAX]


def test_no_more_bytes_are_taken_than_a_body_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "PAYLOAD_BYTES_MAX", 1000)
    two = tuple(Payload.of(name, "text/plain", bytes(600)) for name in "ab")
    with pytest.raises(InvalidValue, match="1,200 bytes together, more than 1,000"):
        Network.pair().alpha.submit(Submission(**{**GOOD, "payloads": two}))
