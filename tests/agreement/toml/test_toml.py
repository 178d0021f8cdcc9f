"""TOML that people write: short, forgiving in form, and strict about words nobody knows."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.agreement.agreement import Direction, Endpoint, EndpointType, Origin, Requested
from oncewire.agreement.certificates import fingerprint, to_pem
from oncewire.agreement.keys import KEYS
from oncewire.agreement.toml import read_toml
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.form import Extension, SyncReplyMode
from oncewire.message.ids import PartyId, Service
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, parse_instant
from oncewire.protocol.sequence import RM_080_RANGE, SequenceRange
from oncewire.protocol.terms import FlowMode, OnExhausted
from tests.agreement import samples
from tests.examples import examples

SHORT = """
cpa_id = "a-b"
[own]
party_id = "urn:ex:a"
[partner]
party_id = "urn:ex:b"
http = "https://b.example/msh"
"""


def test_a_handful_of_keys_is_enough() -> None:
    short = read_toml(SHORT, name="a-b.toml")
    assert (short.cpa_id, short.profile) == ("a-b", "ebms2")
    assert short.own.party.ids == (PartyId("urn:ex:a"),)
    assert short.partner.handler_uri == "https://b.example/msh"
    assert short.sending.terms.transports == ("http",)
    assert short.sending.endpoints == (Endpoint("http", "https://b.example/msh"),)


@pytest.mark.requirement("CPA-4", "CPA-5", "CPA-6")
@pytest.mark.parametrize(
    ("written", "duration"),
    [
        ("30", 30 * SECOND),
        ("0", 0),
        ("1.5", 1_500_000),
        ('"30"', 30 * SECOND),
        ('"30s"', 30 * SECOND),
        ('"250ms"', 250_000),
        ('"5m"', 5 * MINUTE),
        ('"2h"', 2 * HOUR),
        ('"1d"', DAY),
        ('"PT30S"', 30 * SECOND),
        ('"P1DT2H"', DAY + 2 * HOUR),
    ],
)
def test_durations_are_written_in_many_ways(written: str, duration: int) -> None:
    terms = samples.agreement(rest=f"[delivery]\nretry_interval = {written}\n").sending.terms
    assert terms.retry_interval == duration
    # A missing Timeout equals RetryInterval (C19).
    assert terms.timeout == duration


@pytest.mark.parametrize(
    "written",
    ["true", "-1", "nan", "inf", "1e300", '"soon"', '"-PT1S"', "[]", "{}", '"30 parsecs"', "1e12",
     '""', "2026-01-01", '"P999999999Y"', '"P"', '"PT"'],
)  # fmt: skip
def test_what_is_no_duration_is_said_with_its_key(written: str) -> None:
    with pytest.raises(AgreementProblem) as caught:
        samples.agreement(rest=f"[delivery]\nretry_interval = {written}\n")
    assert caught.value.key == "delivery.retry_interval"
    assert caught.value.remedy


@pytest.mark.requirement("CPA-15")
def test_the_time_accuracy_is_written_mm_ss() -> None:
    terms = samples.agreement(rest='[delivery]\ntime_accuracy = "01:30"\n').sending.terms
    assert terms.time_accuracy == 90 * SECOND


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ('"rm-0.80"', RM_080_RANGE),
        ("[0, 9]", SequenceRange(0, 9)),
    ],
)
def test_a_sequence_range_has_a_name_or_two_ends(written: str, numbers: SequenceRange) -> None:
    rest = f'[sequence]\nrange = {written}\nordered = true\n[flow]\nmode = "window"\nwindow = 4\n'
    assert samples.agreement("ms-0.9x", rest).sending.terms.numbers == numbers


@pytest.mark.parametrize(
    ("rest", "key", "meant"),
    [
        ("[delivery]\nretrys = 3\n", "delivery.retrys", "delivery.retries"),
        ("[delivery]\npersistDuration = 3\n", "delivery.persistDuration",
         "delivery.persist_duration"),
        ("[delivry]\nretries = 3\n", "delivry", None),
        ("[sync]\nmodus = 1\n", "sync.modus", "sync.mode"),
        ("[[actions]]\nservise = 'x'\n", "actions.servise", "service"),
        ("[[actions]]\nservice = 'x'\n[actions.delivery]\nretrys = 1\n", "delivery.retrys",
         "delivery.retries"),
        ("[via]\nurl = 'x'\n", "via.url", "via.uri"),
    ],
)  # fmt: skip
def test_an_unknown_key_names_the_nearest_known_one(rest: str, key: str, meant: str | None) -> None:
    with pytest.raises(AgreementProblem) as caught:
        samples.agreement(rest=rest)
    assert caught.value.key == key
    if meant is not None:
        assert caught.value.remedy == f"did you mean {meant}?"


def test_a_key_at_the_top_is_found_in_its_section() -> None:
    with pytest.raises(AgreementProblem, match=r"did you mean delivery\.retries"):
        samples.agreement(top="retries = 3")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda text: text.replace('cpa_id = "alpha-beta-1"', ""), "cpa_id"),
        (lambda text: text.replace('party_id = "beta"', ""), "own.party_id"),
        (lambda text: text.replace('party_id = "beta"', "party_id = []"), "own.party_id"),
        (lambda text: text.replace('party_id = "beta"', "party_id = [{valu = 'x'}]"),
         "own.party_id.valu"),
        (lambda text: text.replace("[own]", "[owned]"), "owned"),
        (lambda text: text + "[delivery]\ntransports = 3", "delivery.transports"),
        (lambda text: text + "[delivery]\nretries = 3.5", "delivery.retries"),
        (lambda text: text + "[delivery]\nretries = -1", "delivery.retries"),
        (lambda text: text + "[ack]\nrequest = 'often'", "ack.request"),
        (lambda text: text + "[security]\npartner_certificates = 'a.pem'",
         "security.partner_certificates"),
        (lambda text: text + "[security]\npartner_certificates = '-----BEGIN x'", None),
        (lambda text: text + "[[actions]]\naction = 'x'", "actions.service"),
        (lambda text: text + "[[actions]]\nservice='x'\ndirection = 'up'", "actions.direction"),
        (lambda text: text + "[[actions]]\nservice='x'\n[[actions]]\nservice='x'", "actions"),
        (lambda text: text + "[[actions]]\n[[actions]]\n", "actions"),
        (lambda text: text + "[[actions]]\nservice='x'\n[actions.wire]\ndialect='ebms2'",
         "wire.dialect"),
        (lambda text: text.replace('"ebms2"', '"ebms3"'), "profile"),
        (lambda text: text + "[ack]\nrequest = 'never'\n[delivery]\nreliable = true",
         "ack.request"),
        (lambda text: text + "[ack]\nrequest = 'always'\n[delivery]\nreliable = false",
         "delivery.reliable"),
        (lambda text: text + "[sequence]\nordered=true\n[ack]\nrequest='never'", "sequence"),
        (lambda text: text.replace("[own]", "start = 2026-01-02\nend = 2026-01-01\n[own]"),
         "cpa_id"),
        (lambda text: text.replace("[own]", "start = 'soon'\n[own]"), "start"),
        (lambda text: text.replace("[own]", "status = 'vague'\n[own]"), "status"),
        (lambda text: text.replace("[own]", "listed_only = 'yes'\n[own]"), "listed_only"),
        (lambda text: text.replace("https://alpha.example/msh", " "), "partner.http"),
        (lambda text: text + "http2 = 'x'", "partner.http2"),
        (lambda text: text.replace('http = "https://alpha.example/msh"', "http = {any = 'x'}"),
         "partner.http.any"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_its_key_and_a_next_step(
    change: Callable[[str], str], key: str | None
) -> None:
    with pytest.raises(AgreementProblem) as caught:
        read_toml(change(samples.toml()))
    assert key is None or caught.value.key == key
    assert caught.value.problem
    assert caught.value.remedy


def test_a_size_is_a_number_of_bytes_without_a_unit() -> None:
    with pytest.raises(AgreementProblem) as caught:
        read_toml(samples.toml() + "[payload]\nmax_size = '500kB'")
    assert "'500kB' is not a number of bytes without a unit, such as 500000" in caught.value.problem
    assert "46116860" not in caught.value.problem + caught.value.remedy


def test_a_window_that_numbers_cannot_tell_apart_is_refused() -> None:
    rest = '[sequence]\nrange = [0, 9]\nordered = true\n[flow]\nmode = "window"\nwindow = {}\n'
    assert samples.agreement("ms-0.9x", rest.format(5)).sending.terms.window == 5
    with pytest.raises(AgreementProblem, match="more than half"):
        samples.agreement("ms-0.9x", rest.format(6))


def test_a_triple_scope_with_two_transports_is_refused_where_messages_are_numbered() -> None:
    with pytest.raises(AgreementProblem) as caught:
        samples.agreement("rm-0.78", partner='smtp = "mailto:alpha@example"')
    assert caught.value.key == "sequence.scope"


def test_parties_have_several_ids_roles_and_addresses() -> None:
    read = read_toml(
        """
        cpa_id = "a-b"
        also_known_as = ["S1", "S2"]
        start = 2026-01-01T00:00:00Z
        end = "2027-01-01T00:00:00Z"
        [own]
        party_id = ["one", {value = "two", type = "DUNS"}]
        type = "urn:ex:org"
        role = "Buyer"
        name = "We"
        uri = "https://we.example/routing"
        http = "https://we.example/msh"
        [partner]
        party_id = {value = "urn:ex:b"}
        smtp = {allPurpose = "mailto:b@example", error = ["mailto:e@example"]}
        http = "https://b.example/msh"
        behind = ["urn:ex:c"]
        [via]
        party_id = "hub"
        http = "https://hub.example/msh"
        timeout = 10
        retries = 2
        retry_interval = "20s"
        sync_timeout = 5
        """
    )
    assert read.own.party.ids == (PartyId("one", "urn:ex:org"), PartyId("two", "DUNS"))
    assert (read.own.party.role, read.own.name) == ("Buyer", "We")
    assert read.own.handler_uri == "https://we.example/routing"
    assert read.partner.endpoints == (
        Endpoint("smtp", "mailto:b@example"),
        Endpoint("smtp", "mailto:e@example", EndpointType.ERROR),
        Endpoint("http", "https://b.example/msh"),
    )
    assert read.partner.behind == (PartyId("urn:ex:c"),)
    assert read.start == parse_instant("2026-01-01T00:00:00Z")[0]
    assert read.also_known_as == ("S1", "S2")
    assert read.via is not None
    assert read.via.longest_retry == 50 * SECOND
    # We send to the hub, so its transports count.
    assert read.sending.terms.transports == ("http",)


def test_the_order_of_addresses_is_the_order_of_transports() -> None:
    both = samples.agreement(partner='smtp = "mailto:alpha@example"')
    assert both.sending.terms.transports == ("http", "smtp")


@pytest.mark.requirement("CPA-8")
def test_actions_and_directions_override_the_whole() -> None:
    read = samples.agreement(
        rest="""
        [delivery]
        retries = 2
        [[actions]]
        direction = "receive"
        [actions.delivery]
        retries = 7
        [[actions]]
        service = "urn:ex:orders"
        action = "PlaceOrder"
        role = "Seller"
        partner_role = "Buyer"
        [actions.sequence]
        ordered = true
        [[actions]]
        service = "pings"
        service_type = "urn:ex:services"
        direction = "send"
        http = "https://alpha.example/pings"
        [actions.ack]
        request = "never"
        """
    )
    assert read.sending.terms.retries == 2
    assert read.receiving.terms.retries == 7
    sent, taken, pings = read.actions
    assert (sent.direction, taken.direction) == (Direction.SEND, Direction.RECEIVE)
    assert (sent.terms.retries, taken.terms.retries) == (2, 7)
    assert sent.terms.ordered
    assert sent.terms.flow is FlowMode.WINDOW
    assert sent.terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL
    assert (sent.from_role, sent.to_role) == ("Seller", "Buyer")
    assert (taken.from_role, taken.to_role) == ("Buyer", "Seller")
    assert pings.service == Service("pings", "urn:ex:services")
    assert pings.endpoints == (Endpoint("http", "https://alpha.example/pings"),)
    assert not pings.terms.reliable


def test_every_value_knows_its_origin() -> None:
    read = read_toml(samples.toml("window", "[delivery]\nretries = 9\n"), name="alpha.toml")
    known = {value.key: value for value in read.sending.values}
    assert set(known) == set(KEYS)
    assert (known["delivery.retries"].origin, known["delivery.retries"].where) == (
        Origin.FILE, "alpha.toml",
    )  # fmt: skip
    assert (known["flow.window"].origin, known["flow.window"].where) == (Origin.PROFILE, "window")
    assert known["sequence.scope"].where == "ms-0.9x"
    assert known["delivery.timeout"].origin is Origin.DEFAULT
    assert known["delivery.timeout"].where == "equals retry_interval"
    assert (known["delivery.keep"].origin, known["delivery.keep"].where) == (Origin.DEFAULT, "")


def test_yes_and_no_stand_for_always_and_never() -> None:
    rules = samples.agreement(rest="[duplicate]\nelimination = true\n").sending.rules
    assert rules.duplicate_elimination is Requested.ALWAYS
    rules = samples.agreement(rest="[duplicate]\nelimination = false\n").sending.rules
    assert rules.duplicate_elimination is Requested.NEVER


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("AcksOnly", SyncReplyMode.MSH_SIGNALS_ONLY),
        ("ResponseOnly", SyncReplyMode.RESPONSE_ONLY),
        ("AcksAndResponse", SyncReplyMode.SIGNALS_AND_RESPONSE),
        ("signalsOnly", SyncReplyMode.SIGNALS_ONLY),
        ("none", SyncReplyMode.NONE),
    ],
)
def test_the_sync_papers_words_are_known(word: str, mode: SyncReplyMode) -> None:
    read = samples.agreement(rest=f'[sync]\nmode = "{word}"\n')
    assert read.sending.terms.sync_mode is mode


def test_extensions_are_named_one_by_one() -> None:
    read = samples.agreement(rest='[wire]\nextensions = ["split", "compression"]\n')
    assert read.form.extensions == {Extension.SPLIT, Extension.COMPRESSION}


@pytest.mark.requirement("RM-7", "CPA-7")
def test_the_transport_method_supports_itself() -> None:
    rest = '[delivery]\nmethod = "Transport"\n'
    binding = samples.agreement("ms-0.9x", rest).sending
    assert binding.rules.supports(binding.terms.method)
    assert not binding.terms.runs_protocol


def test_certificates_come_as_files_or_as_text(corpus: Path) -> None:
    der = (corpus / "ebms-core/certs/localhost.crt").read_bytes()
    pem = (corpus / "ebms-core/certs/localhost.pem").read_bytes()
    files = {"b.crt": der, "b.pem": pem}
    rest = f"""
    [security]
    partner_certificates = ["b.crt", "b.pem"]
    trust_anchors = '''{to_pem(der)}'''
    """
    partner = 'behind = []\nftp = "ftp://b"'.replace("behind = []\n", "")
    text = samples.toml(rest=rest, partner=partner).replace(
        f'["{samples.FINGERPRINT}"]', '["b.crt", "AB:' + "CD:" * 30 + 'EF"]'
    )
    read = read_toml(text, load=files.__getitem__)
    assert read.sending.security.partner_certificates == (der,)
    assert read.sending.security.trust_anchors == (der,)
    assert read.partner.client_certificates == (fingerprint(der), "ab" + "cd" * 30 + "ef")


def test_a_file_that_cannot_be_read_is_named() -> None:
    def load(name: str) -> bytes:
        raise FileNotFoundError(name)

    text = samples.toml(rest='[security]\npartner_certificates = "gone.pem"\n')
    with pytest.raises(AgreementProblem, match=r"gone\.pem"):
        read_toml(text, load=load)


def test_a_file_may_import_a_cpa_and_say_a_few_words_over_it(corpus: Path) -> None:
    xml = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml").read_bytes()
    text = """
    cpa = "stub.xml"
    [own]
    party_id = "00000000000000000001"
    type = "urn:osb:oin"
    [delivery]
    persist_duration = "P2D"
    """
    read = read_toml(text, load={"stub.xml": xml}.__getitem__)
    assert read.own.name == "Overheid"
    assert all(one.terms.persist_duration == 2 * DAY for one in read.bindings())
    assert {one.terms.retries for one in read.actions} == {5}
    with pytest.raises(AgreementProblem, match="said by the CPA"):
        read_toml('cpa_id = "x"\n' + text, load={"stub.xml": xml}.__getitem__)


# --- anything at all ---------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [*KEYS, *(name.partition(".")[2] for name in KEYS), "cpa_id", "own", "partner", "via",
     "actions", "party_id", "type", "http", "smtp", "service", "direction", "profile", "end"]
)  # fmt: skip
_VALUES = st.one_of(
    st.sampled_from(
        ['"always"', '"PT1S"', "1", "true", '"ebms2"', '"rm-0.78"', '"window"', "[]", "{}",
         "[0, 9]", "1e400", "nan", "2026-01-01", "0x10", '"a"', "[[1]]", '"none"', '["http"]',
         "9" * 30, '"mailto:x"', "07:32:00", "1979-05-27T07:32:00", '"d"', '"stop-and-wait"']
    ),
    st.integers().map(str),
    st.text(max_size=20).map(lambda text: repr(text)),
)  # fmt: skip
_LINES = st.one_of(
    st.tuples(_WORDS, _VALUES).map(" = ".join),
    _WORDS.map(lambda word: f"[{word.partition('.')[0]}]"),
    _WORDS.map(lambda word: f"[actions.{word.partition('.')[0]}]"),
    st.just("[[actions]]"),
    st.text(max_size=30),
)


def _only_known_problems(text: str) -> None:
    with contextlib.suppress(AgreementProblem, InvalidValue):
        read_toml(text)


@given(st.text())
def test_any_text_gives_an_agreement_or_a_problem(text: str) -> None:
    _only_known_problems(text)


@settings(max_examples=examples(400))
@given(st.lists(_LINES, max_size=12).map("\n".join))
def test_any_lines_give_an_agreement_or_a_problem(lines: str) -> None:
    _only_known_problems(lines)


@settings(max_examples=examples(400))
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), _VALUES, max_size=6))
def test_any_values_of_known_keys_give_an_agreement_or_a_problem(said: dict[str, str]) -> None:
    _only_known_problems("\n".join(f"{key} = {value}" for key, value in said.items()) + SHORT)


def test_deep_nesting_and_huge_numbers_are_problems() -> None:
    for text in (
        "a = " + "[" * 20_000 + "]" * 20_000,
        "a." * 5_000 + "b = 1",
        "a = " + "9" * 10_000,
        "x" * (4 * 1024 * 1024 + 1),
        "delivery.retries = " + "9" * 4000 + SHORT,
    ):
        with pytest.raises(AgreementProblem):
            read_toml(text)
