"""Whatever another process writes into the control socket, or a program gives to a verb: it is
done, or refused by a named error; never does it become a fault of the handler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncewire import errors
from oncewire.entry.control import language, values
from oncewire.entry.control.client import ControlServer, OfflineStore
from oncewire.entry.control.values import CHECKS, TEXT_MAX
from oncewire.entry.control.verb import Verb
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.party.settings import load
from oncewire.entry.running.serving import make_engine
from oncewire.handler.actions import Submission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service

SUBMISSION = Submission(
    "acme-globex",
    Service("urn:test:orders"),
    "New",
    (Payload.of("a@test", "text/plain", b"a"),),
    conversation_id="talk",
    time_to_live=3_600_000_000,
)
GOOD: dict[str, Any] = {
    "message_id": "order-1",
    "channel": "a channel",
    "reason": "why",
    "timeout": 0,
    "partner": "urn:of:nobody",
    "text": "4711",
    "conversation": "talk",
    "service": "urn:test:orders",
    "action": "New",
    "state": "unknown",
    "since": "2d",
    "until": "1d",
    "file": "orders.csv",
    "value": "4711",
    "parts": True,
    "again": True,
    "slow": True,
    "slowest": True,
    "tally": True,
    "direction": "in",
    "after": "start_end",
    "resolved": True,
    "limit": 1,
    "through": 10,
    "held": True,
    "submission": SUBMISSION,
    "sender": "urn:test:globex",
    "by": "pat",
    "notice_id": "notice-1",
}
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["\ud800", "\x00", "a\nb", "x" * 256, "x" * (TEXT_MAX + 1), "\ufffe", " ", "\u2028"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
EVERY = [
    pytest.param(verb, name, id=f"{verb.name}-{name}")
    for verb in TABLE.values()
    for name in [
        *(argument.name for argument in verb.arguments),
        *(values.FORMS["Submission"].write(SUBMISSION, []) if verb.name == "send" else ()),
    ]
]


@pytest.fixture(scope="module")
def at_rest(pattern: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfflineStore]:
    """One store for all, of a party nobody else has."""
    import shutil

    from oncewire.entry.party.folder import read_card
    from oncewire.entry.party.partners import PartnerOptions, add_partner

    folder = tmp_path_factory.mktemp("any") / "parties"
    shutil.copytree(pattern, folder)
    found = load(folder / "acme", environ={}).settings
    add_partner(found, read_card(folder / "globex"), PartnerOptions())
    rest = OfflineStore(make_engine(found))
    yield rest
    asyncio.run(rest.close())


def _request(verb: Verb[..., Any], name: str, value: Any) -> language.ControlFrame:
    """A good request in which one argument, or one field of the submission, is that value."""
    good = {argument.name: GOOD[argument.name] for argument in verb.arguments}
    if verb.name == "resume":
        # It wants one of the two.
        good = {name: good[name]}
    frame = values.request_frame(verb, verb.bind(good))
    arguments = dict(frame.values["arguments"])
    if name in arguments:
        arguments[name] = value
    else:
        arguments["submission"] = {**arguments["submission"], name: value}
    return language.ControlFrame({"verb": verb.name, "arguments": arguments}, frame.parts)


def _is_named(answer: language.ControlFrame) -> bool:
    """Whether it says what is wrong and what to do; or that all is well."""
    said = json.loads(language.line_of(answer.values))
    if said["ok"]:
        return True
    kind = getattr(errors, said["error"]["kind"])
    return kind is not errors.OncewireError and bool(
        said["error"]["problem"] and said["error"]["remedy"]
    )


@pytest.mark.long
@pytest.mark.parametrize(("verb", "name"), EVERY)
@given(value=VALUES)
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)
def test_any_value_of_any_field_is_done_or_refused_by_name(
    at_rest: OfflineStore, verb: Verb[..., Any], name: str, value: Any
) -> None:
    server = ControlServer(Path("nowhere"), at_rest)
    line = language.line_of(_request(verb, name, value).values)
    frame = language.ControlFrame(json.loads(line), _request(verb, name, value).parts)
    answer = asyncio.run(server.answer(frame))
    assert _is_named(answer), answer


@pytest.mark.parametrize("verb", [pytest.param(each, id=each.name) for each in TABLE.values()])
@given(value=VALUES)
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck), derandomize=True)
def test_a_program_hears_the_same(at_rest: OfflineStore, verb: Verb[..., Any], value: Any) -> None:
    for argument in verb.arguments:
        good = {each.name: GOOD[each.name] for each in verb.arguments}
        bound = verb.bind({**good, argument.name: value})
        found: list[errors.OncewireError] = []
        try:
            asyncio.run(at_rest.perform(verb, bound))
        except errors.OncewireError as error:
            found.append(error)
        assert all(type(error) is not errors.OncewireError for error in found)
        assert all(error.remedy for error in found), found


def test_every_argument_has_a_check_and_no_check_is_there_for_nothing() -> None:
    types = {argument.type for verb in TABLE.values() for argument in verb.arguments}
    assert {name.removesuffix(" | None") for name in types} == set(CHECKS)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("best_effort", "no", "best_effort is no bool: 'no'"),
        ("time_to_live", True, "time_to_live is no lifetime: True"),
        ("time_to_live", -5, "time_to_live is no lifetime: -5"),
        ("message_id", 5, "message_id is no text: 5"),
        ("message_id", "", "message_id is empty"),
        ("message_id", "\ud800", "message_id contains a control character"),
        ("action", None, "action is no text: None"),
        ("service", [], "Service is no text"),
        ("payloads", {"a": 1}, "payloads is {'a': 1}"),
        ("payloads", [["a@test", "text"]], "media type of payload 'a@test' is 'text'"),
        ("payloads", [["a@test"]], "payloads names ['a@test']"),
        ("urgent", True, "a submission has no field 'urgent'"),
    ],
)
def test_the_field_is_named(at_rest: OfflineStore, name: str, value: Any, problem: str) -> None:
    server = ControlServer(Path("nowhere"), at_rest)
    answer = asyncio.run(server.answer(_request(TABLE["send"], name, value)))
    assert answer.values["error"]["kind"] == "InvalidValue"
    assert problem in answer.values["error"]["problem"]
