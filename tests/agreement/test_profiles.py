"""Each profile says what its community or draft says, and no more."""

import pytest

from oncewire.agreement.agreement import Origin, Requested
from oncewire.agreement.compose import PROFILES, compose, profile_values
from oncewire.agreement.keys import KEYS
from oncewire.agreement.toml import read_toml
from oncewire.errors import AgreementProblem
from oncewire.message.envelope import Actor
from oncewire.message.form import Dialect, PartsForm, SoapActionCheck, SyncReplyMode
from oncewire.message.instant import DAY, HOUR, MINUTE
from oncewire.protocol.sequence import RM_078_RANGE, SLIDES_RANGE
from oncewire.protocol.terms import (
    AckBundling,
    DuplicateAnswer,
    FlowMode,
    HeaderConflict,
    HopMode,
    NoResponse,
    OnExhausted,
    OnGap,
    ResetRule,
    RetryCount,
    Scope,
    SyncBundle,
    SyncRetries,
)
from tests.handler.network import agreement_text

NAMES = {
    "ebms2", "cpa", "ms-0.9x", "ms-0.9x-typed", "window", "rm-0.78", "fujitsu-2000",
    "fujitsu-window", "digikoppeling-osb-be",
    "digikoppeling-osb-be-s", "digikoppeling-osb-be-e", "digikoppeling-osb-rm",
    "digikoppeling-osb-rm-s", "digikoppeling-osb-rm-e", "nhs-forward-reliable",
    "nhs-async-reliable", "nhs-express", "nhs-fragments",
    "norway-smtp", "norway-http-sync", "phinms",
}  # fmt: skip


def test_the_profiles_there_are() -> None:
    assert set(PROFILES) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_profile_composes_and_names_itself(name: str) -> None:
    values = profile_values(name)
    whole = compose(values)
    assert PROFILES[name].says.endswith(".")
    assert all(value.origin is Origin.PROFILE and value.where in NAMES for value in values.values())
    assert [value.key for value in whole.values] == list(KEYS)
    parent = PROFILES[name].extends
    if parent is not None:
        untouched = set(profile_values(parent)) - set(PROFILES[name].values)
        for key in untouched:
            assert values[key].value == profile_values(parent)[key].value


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(AgreementProblem, match="did you mean digikoppeling-osb-rm"):
        profile_values("digikopeling-osb-rm")


@pytest.mark.requirement("CPA-9")
def test_ms_0_9x_follows_the_db_chapter() -> None:
    whole = compose(profile_values("ms-0.9x"))
    terms = whole.terms
    assert whole.form.dialect is Dialect.MS_09X
    assert terms.header_conflict is HeaderConflict.HEADER
    assert terms.scope is Scope.PAIR
    assert terms.reset is ResetRule.FIRST_WINDOW
    assert terms.on_gap is OnGap.BUFFER
    assert terms.numbers == SLIDES_RANGE
    assert terms.hop_mode is HopMode.BY_REQUEST
    assert terms.sync_retries is SyncRetries.NONE
    assert terms.sync_bundle is SyncBundle.MERGED
    assert terms.duplicate_answer is DuplicateAnswer.ORIGINAL
    assert terms.duplicate_no_response is NoResponse.ACK
    assert terms.ack_bundling is AckBundling.AUTO
    assert terms.best_effort_filter
    assert not terms.numbered
    assert whole.rules.ack is Requested.WHEN_STATED
    assert not whole.form.ack_typed
    assert compose(profile_values("ms-0.9x-typed")).form.ack_typed


def test_window_is_a_sliding_window_of_eight_in_order() -> None:
    terms = compose(profile_values("window")).terms
    assert (terms.flow, terms.window_size, terms.ordered) == (FlowMode.WINDOW, 8, True)
    assert terms.numbered
    assert terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL
    assert terms.scope is Scope.PAIR


def test_rm_0_78_is_strict_stop_and_wait() -> None:
    whole = compose(profile_values("rm-0.78"))
    terms = whole.terms
    assert whole.form.dialect is Dialect.RM_078
    assert terms.flow is FlowMode.STOP_AND_WAIT
    assert terms.window_size == 1
    assert terms.numbers == RM_078_RANGE
    assert terms.scope is Scope.TRIPLE
    assert terms.on_gap is OnGap.REJECT
    assert terms.reset is ResetRule.SILENT
    assert terms.duplicate_answer is DuplicateAnswer.FRESH_ACK
    assert terms.retries_counted is RetryCount.TOTAL
    assert terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL
    assert terms.ack_bundling is AckBundling.STANDALONE
    assert terms.hop_mode is HopMode.STORE_AND_FORWARD
    assert terms.numbered
    assert terms.ordered


def test_ebms2_follows_the_oasis_answers() -> None:
    whole = compose(profile_values("ebms2"))
    terms = whole.terms
    assert whole.form.dialect is Dialect.EBMS2
    assert terms.header_conflict is HeaderConflict.REJECT
    assert terms.scope is Scope.CONVERSATION
    assert terms.reset is ResetRule.FIRST_MESSAGE
    assert terms.flow is FlowMode.UNRESTRICTED
    assert terms.sync_retries is SyncRetries.SAME_MESSAGE
    assert not terms.best_effort_filter
    assert not whole.form.extensions
    assert whole.rules.ack is Requested.PER_MESSAGE


@pytest.mark.parametrize("kind", ["be", "rm"])
def test_digikoppeling(kind: str) -> None:
    plain = compose(profile_values(f"digikoppeling-osb-{kind}"))
    assert plain.rules.hop_ack is Requested.NEVER
    assert plain.terms.ack_bundling is AckBundling.STANDALONE
    assert plain.terms.hop_mode is HopMode.TRANSPARENT
    assert plain.terms.sync_mode is SyncReplyMode.NONE
    assert plain.form.soap_action == '"ebXML"'
    assert plain.form.soap_action_check is SoapActionCheck.STRICT
    assert not plain.terms.numbered
    signed = compose(profile_values(f"digikoppeling-osb-{kind}-s")).security
    hidden = compose(profile_values(f"digikoppeling-osb-{kind}-e")).security
    assert (plain.security.sign, signed.sign, hidden.sign) == (False, True, True)
    assert (signed.require_signature, signed.encrypt, hidden.encrypt) == (True, False, True)
    assert plain.terms.reliable is (kind == "rm")


def test_digikoppeling_reliable_has_its_own_retries() -> None:
    whole = compose(profile_values("digikoppeling-osb-rm"))
    assert whole.rules.ack is Requested.ALWAYS
    assert whole.rules.duplicate_elimination is Requested.ALWAYS
    assert whole.rules.actor is Actor.TO_PARTY_MSH
    assert (whole.terms.retries, whole.terms.retry_interval) == (8, 3 * HOUR)
    assert whole.terms.persist_duration == DAY
    assert whole.terms.longest_retry == 27 * HOUR


def test_nhs() -> None:
    reliable = compose(profile_values("nhs-async-reliable"))
    assert reliable.terms.sync_mode is SyncReplyMode.MSH_SIGNALS_ONLY
    assert reliable.rules.actor is Actor.TO_PARTY_MSH
    assert (reliable.terms.retries, reliable.terms.retry_interval) == (2, MINUTE)
    assert reliable.terms.persist_duration == 5 * MINUTE
    assert reliable.form.soap_action == "{service}/{action}"
    forward = compose(profile_values("nhs-forward-reliable"))
    assert forward.rules.actor is Actor.NEXT_MSH
    assert forward.terms.hop_ack_requested.value == "Unsigned"
    assert forward.terms.ack_requested.value == "None"
    assert forward.terms.sync_mode is SyncReplyMode.NONE
    assert forward.rules.duplicate_elimination is Requested.ALWAYS
    fragments = compose(profile_values("nhs-fragments"))
    assert fragments.form.parts is PartsForm.MID
    assert fragments.form.fragment_action == "COPC_IN000001UK01"
    assert (fragments.terms.max_size, fragments.terms.compress_encoding) == (5_000_000, "gzip")
    assert forward.form.parts is PartsForm.SPLIT
    express = compose(profile_values("nhs-express"))
    assert not express.terms.reliable
    assert express.rules.duplicate_elimination is Requested.NEVER


def test_norway() -> None:
    mail = compose(profile_values("norway-smtp"))
    assert mail.terms.transports == ("smtp",)
    assert mail.terms.ack_requested.value == "Signed"
    assert mail.rules.ack_signature is Requested.ALWAYS
    assert (mail.terms.retries, mail.terms.retry_interval) == (4, 4 * HOUR)
    assert mail.terms.persist_duration == 2 * DAY
    assert mail.security.sign
    web = compose(profile_values("norway-http-sync"))
    assert web.terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE
    assert not web.terms.reliable
    assert web.rules.duplicate_elimination is Requested.NEVER


def test_phinms_is_answered_without_being_asked() -> None:
    whole = compose(profile_values("phinms"))
    assert whole.rules.ack is Requested.ALWAYS
    assert whole.rules.ack_signature is Requested.NEVER
    assert whole.rules.sync is Requested.WHEN_STATED
    assert whole.terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE


@pytest.mark.requirement("RTY-18")
def test_what_a_cpa_leaves_open_outlasts_a_night_and_is_remembered_longer() -> None:
    text = agreement_text("alpha", "beta", "cpa")
    terms = read_toml(text).sending.terms
    assert terms.longest_retry >= DAY
    assert terms.persist_duration > terms.longest_retry
    said = read_toml(text + '[delivery]\nretries = 2\nretry_interval = "PT1M"\n').sending.terms
    assert (said.retries, said.retry_interval) == (2, MINUTE)
