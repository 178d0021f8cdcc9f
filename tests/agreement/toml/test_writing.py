"""What is written can be read again and means the same; a first agreement is ready to use."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oncewire.agreement.agreement import Agreement, Origin
from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.keys import KEYS
from oncewire.agreement.toml import new, read_toml, write_toml, write_whole
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message import kinds
from tests.agreement import samples
from tests.agreement.cppa.test_corpus_cpas import STATED
from tests.agreement.readings import read_views
from tests.examples import examples


def _again(agreement: Agreement) -> Agreement:
    return read_toml(write_toml(agreement))


@pytest.mark.parametrize("profile", PROFILES)
def test_an_agreement_survives_writing_and_reading(profile: str) -> None:
    written = samples.agreement(
        profile,
        """
        [delivery]
        retry_interval = 7
        persist_duration = "P3D"
        [[actions]]
        direction = "receive"
        [actions.delivery]
        retries = 1
        [[actions]]
        service = "urn:ex:orders"
        action = "Place \\"it\\" \\\\ now"
        role = "Seller"
        http = {request = "https://alpha.example/r", error = "https://alpha.example/e"}
        [actions.delivery]
        timeout = "PT7.5S"
        [via]
        uri = "https://hub.example/msh"
        http = "https://hub.example/msh"
        retries = 3
        retry_interval = 4
        """,
        top='start = 2026-01-01\nalso_known_as = ["x"]\nlisted_only = true\nforwards = true',
    )
    assert _again(written) == written
    assert read_toml(write_whole(written)) == written


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_written_whole_leaves_nothing_to_a_profile_or_a_default(profile: str) -> None:
    agreement = samples.agreement(profile, "[delivery]\nretries = 9\n")
    read = read_toml(write_whole(agreement))
    assert read == agreement
    unsaid = [value.key for value in read.sending.values if value.origin is not Origin.FILE]
    assert write_whole(read) == write_whole(agreement)
    # What asks the next handler may follow from the other wishes, and cannot be said beside them.
    # By which values we find messages is not agreed with anybody.
    assert set(unsaid) <= {"ack.hop_request", "payload.index"}


def test_only_what_was_said_is_written() -> None:
    written = write_toml(samples.agreement("window", "[delivery]\nretries = 9\n"))
    assert "[delivery]\nretries = 9\n" in written
    assert "[[actions]]" not in written
    assert "window = " not in written


@pytest.mark.parametrize("name", STATED)
def test_a_cpa_becomes_toml_that_means_the_same(corpus: Path, name: str) -> None:
    for view in read_views((corpus / name).read_bytes()):
        assert _again(view) == replace(view, not_offered=())
        assert read_toml(write_whole(view)) == replace(view, not_offered=())


_SAID: dict[str, st.SearchStrategy[str]] = {
    "delivery.retries": st.integers(0, 20).map(str),
    "delivery.retry_interval": st.integers(0, 10_000).map(str),
    "delivery.timeout": st.integers(0, 10_000).map(str),
    "delivery.persist_duration": st.integers(0, 10_000_000).map(str),
    "delivery.reliable": st.sampled_from(["true", "false"]),
    "delivery.time_to_live": st.sampled_from(['"none"', "60"]),
    "ack.request": st.sampled_from(['"always"', '"never"', '"perMessage"', '"whenStated"']),
    "ack.signature": st.sampled_from(['"always"', '"never"', '"perMessage"']),
    "ack.actor": st.sampled_from(['"toPartyMSH"', '"nextMSH"']),
    "sequence.ordered": st.sampled_from(["true", "false"]),
    "sequence.numbered": st.sampled_from(["true", "false"]),
    "sequence.scope": st.sampled_from(['"pair"', '"triple"', '"conversation"']),
    "sequence.on_gap": st.sampled_from(['"reject"', '"buffer"']),
    "sequence.range": st.sampled_from(['"slides"', '"rm-0.78"', "[0, 99]"]),
    "flow.mode": st.sampled_from(['"window"', '"stop-and-wait"', '"unrestricted"']),
    "flow.window": st.integers(1, 60).map(str),
    "sync.mode": st.sampled_from(['"none"', '"mshSignalsOnly"']),
    "business.non_repudiation_of_receipt": st.sampled_from(["true", "false"]),
    "payload.max_size": st.sampled_from(['"none"', "100000"]),
}


def _some() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional=_SAID)


def _lines(said: dict[str, str], prefix: str = "") -> str:
    return "".join(f"{prefix}{key} = {value}\n" for key, value in said.items())


@pytest.mark.long
@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(PROFILES)), _some(), _some(), _some())
def test_any_agreement_survives_writing_and_reading(
    profile: str, whole: dict[str, str], direction: dict[str, str], action: dict[str, str]
) -> None:
    text = samples.toml(
        profile,
        f'[[actions]]\ndirection = "receive"\n{_lines(direction)}'
        f'[[actions]]\nservice = "urn:ex:orders"\naction = "Place"\n{_lines(action)}',
        top=_lines(whole),
    )
    try:
        read = read_toml(text)
    except AgreementProblem:
        assume(False)
    assert _again(read) == read
    assert read_toml(write_whole(read)) == read


@pytest.mark.parametrize("profile", PROFILES)
def test_a_new_agreement_is_short_commented_and_right(profile: str) -> None:
    text = new(
        cpa_id="a-b",
        own="urn:ex:a",
        partner="urn:ex:b",
        address="https://b.example/msh",
        own_address="https://a.example/msh",
        profile=profile,
    )
    read = read_toml(text)
    assert (read.cpa_id, read.profile) == ("a-b", profile)
    assert read.own.endpoints[0].address == "https://a.example/msh"
    # What a first file still lacks is a matter of keys and mail addresses, not of mistakes.
    wrong = {one.key for one in check(read) if one.severity is Severity.ERROR}
    assert wrong <= {
        "security.partner_certificates", "security.partner_encryption_certificates",
        "partner.smtp",
    }  # fmt: skip
    # The values in the comments are those in force, so removing the marks changes nothing.
    loud = "\n".join(
        line.removeprefix("# ") if " = " in line and "urn:example" not in line else line
        for line in text.splitlines()
    )
    assert read_toml(loud) == read


def test_a_new_agreement_knows_transports_and_types() -> None:
    text = new(
        cpa_id="a-b", own="1", partner="2", address="mailto:b@example", party_type="urn:ex:org",
        profile="norway-smtp",
    )  # fmt: skip
    read = read_toml(text)
    assert read.partner.party.ids[0].type == "urn:ex:org"
    assert read.sending.terms.transports == ("smtp",)
    assert "[delivery]" in text
    assert all(KEYS[name].says.endswith(".") for name in KEYS)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("address", "gopher://x"), ("address", ""), ("cpa_id", ""), ("own", "a\nb"), ("profile", "x")],
)
def test_a_new_agreement_is_never_made_of_nonsense(argument: str, value: str) -> None:
    arguments = {
        "cpa_id": "a-b", "own": "urn:a", "partner": "urn:b", "address": "https://b.example/",
    }  # fmt: skip
    with pytest.raises((AgreementProblem, InvalidValue)):
        new(**(arguments | {argument: value}))


def test_the_comment_of_a_key_is_true_whatever_its_value() -> None:
    """`ordered = false  # Messages are delivered in order.` says of a key what one value means."""
    for key in KEYS.values():
        if key.kind is kinds.BOOL:
            assert key.says.startswith("Whether "), key.name
        assert not key.says.startswith(("We ", "Messages ")), key.name
    for profile in PROFILES:
        text = new(
            cpa_id="a-b", own="urn:a", partner="urn:b", address="https://b.example", profile=profile
        )
        (line,) = [line for line in text.splitlines() if line.startswith("# ordered = ")]
        assert line.partition("  # ")[2].startswith("Whether messages are delivered in order")
