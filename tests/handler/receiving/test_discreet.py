"""Who does not prove to be the partner learns nothing of what was agreed."""

from __future__ import annotations

import hashlib

import pytest

from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Source
from oncewire.message.form import Form
from oncewire.message.ids import Party
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, Reply, agreement_text
from tests.handler.samples import SOAP_ACTION
from tests.handler.test_http import message

DER = b"the certificate that was agreed on"
PRINT = hashlib.sha256(DER).hexdigest()
PARTNER = Source("http", can_answer=True, certificate=DER)
NOBODY = Source("http", can_answer=True)
ANOTHER = Source("http", can_answer=True, certificate=b"another")

SYNC = '[sync]\nmode = "mshSignalsOnly"\n'
LISTED = '[[actions]]\nservice = "urn:secret:service"\naction = "Secret"\ndirection = "receive"\n'
# Terms that an ordinary message breaks.
BROKEN = {
    "connection alone": ("ebms2", SYNC),
    "no synchronous replies": ("ebms2", ""),
    "actions": ("ebms2", f"listed_only = true\n{SYNC}{LISTED}"),
    "acknowledgements": (
        "ebms2",
        f'{SYNC}[delivery]\nheader_conflict = "d"\n[ack]\nrequest = "never"\n',
    ),
    "soap action": (
        "ebms2",
        f'{SYNC}[wire]\nsoap_action = "Secret"\nsoap_action_check = "strict"\n',
    ),
    "dialect": ("ms-0.9x", ""),
}


def desk(case: str) -> Network:
    profile, more = BROKEN[case]
    text = agreement_text("beta", "alpha", profile, more).replace("http://", "https://")
    text = text.replace("[partner]\n", f'[partner]\nclient_certificates = ["{PRINT}"]\n')
    if "listed_only" in text:
        text = "listed_only = true\n" + text.replace("listed_only = true\n", "")
    return Network.single(read_toml(text), at="2026-01-01T00:00:00Z")


def sent(**changes: object) -> Parcel:
    parcel = codec.write(message(1, **changes), Form())
    return Parcel(parcel.content_type, parcel.body, SOAP_ACTION)


def words(reply: Reply) -> tuple[str, str, str]:
    if reply.fault is not None:
        return reply.fault.code, "", reply.fault.string
    (error,) = reply.errors
    return error.code, error.location, error.description


@pytest.mark.parametrize("source", [NOBODY, ANOTHER], ids=["no certificate", "another"])
@pytest.mark.parametrize("case", BROKEN)
def test_one_word_for_all_reasons(case: str, source: Source) -> None:
    here = desk(case)
    code, location, text = words(here.hand_in(sent(), source))
    assert (code, location, text) == words(desk("connection alone").hand_in(sent(), NOBODY))
    assert code == "SecurityFailure"
    assert "agreement binds" not in text
    # The reason is here, for whoever looks after the handler.
    (counted,) = here.engine.context.state.refusals.counted
    assert counted.problem not in text


@pytest.mark.parametrize("case", [case for case in BROKEN if case != "connection alone"])
def test_the_partner_hears_the_reason(case: str) -> None:
    here = desk(case)
    reply = here.hand_in(sent(), PARTNER)
    (counted,) = here.engine.context.state.refusals.counted
    assert counted.problem in words(reply)[2]


def test_a_name_that_is_guessed_right_is_answered_like_one_that_is_not() -> None:
    mallory = Party.of("urn:test:mallory")
    guesses = [sent(from_party=mallory, cpa_id=one) for one in ("alpha-beta", "nobody-knows")]
    guesses.append(sent(from_party=mallory, to_party=Party.of("urn:test:other")))
    told = [words(desk("connection alone").hand_in(guess, NOBODY)) for guess in guesses]
    assert len(set(told)) == 1
    assert told[0][:2] == ("ValueNotRecognized", "//Header/MessageHeader/CPAId")


def test_what_is_wrong_with_the_message_itself_is_told_to_anybody() -> None:
    good = sent()
    broken = Parcel(good.content_type, good.body.replace(b"<doc>", b"<cod>"), SOAP_ACTION)
    assert broken.body != good.body
    assert words(desk("connection alone").hand_in(broken, NOBODY))[0] == "MimeProblem"
