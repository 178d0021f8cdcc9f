"""No forged message is believed, and the forger is shown to be able."""

import pytest
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import signature, wrapping
from oncewire.wire.security.certificates import Trust
from tests.wire.security import forger, keys, reference_engine
from tests.wire.security.documents import PART, PART_ID

SEED = 20260101


def _accepted(forgery: forger.Forgery) -> bool:
    trust = Trust((keys.alpha().certificate,))
    try:
        signature.verify_signature(forgery.envelope, forgery.parts, trust, keys.NOW)
    except SecurityFailure:
        return False
    return True


def test_the_good_messages_are_believed() -> None:
    for name, envelope in forger.good_messages().items():
        assert _accepted(forger.Forgery(name, envelope)), name


@pytest.mark.long
def test_no_forgery_is_accepted() -> None:
    print(f"seed {SEED}")
    made = forger.forgeries(SEED)
    assert len(made) >= 1_000
    assert len({forgery.how for forgery in made}) >= 1_000
    accepted = [forgery.how for forgery in made if _accepted(forgery)]
    print(f"{len(made)} forgeries, {len(accepted)} accepted")
    assert accepted == []


@pytest.mark.long
def test_the_referee_alone_would_believe_many() -> None:
    # xmlsec only says that a signature is good, not of what: these forgeries are real ones.
    certificate = keys.alpha().certificate_pem
    fooled = 0
    for forgery in forger.forgeries(SEED)[:400]:
        if b"EVIL" not in forgery.envelope:
            continue
        root = etree.fromstring(forgery.envelope)
        if root.find(".//{http://www.w3.org/2000/09/xmldsig#}Signature") is None:
            continue
        if reference_engine.verifies(forgery.envelope, certificate, {f"cid:{PART_ID}": PART}):
            fooled += 1
    print(f"the referee alone believes {fooled}")
    assert fooled >= 100


def test_without_the_rules_of_place_the_view_still_holds_nothing_evil(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two walls: should a rule of place be missing one day, what is read is still only the signed.
    monkeypatch.setattr(wrapping, "check_blocks", lambda *_: None)
    monkeypatch.setattr(wrapping, "check_left_out", lambda *_: None)
    trust = Trust((keys.alpha().certificate,))
    passed = 0
    for forgery in forger.forgeries(SEED):
        try:
            verified = signature.verify_signature(forgery.envelope, forgery.parts, trust, keys.NOW)
        except SecurityFailure:
            continue
        passed += 1
        assert b"EVIL" not in verified.octets, forgery.how
    assert passed >= 20
