"""Templates of signatures are no way around the agreement and the certificates of today."""

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.message.instant import DAY
from oncewire.protocol.states import OutgoingState
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, TestWorld, agreement_text
from tests.handler.test_signed import pem, signed_pair
from tests.wire.security.keys import alpha, issue


def _taught() -> Network:
    """Two handlers that have learned how the other signs: the second message shows it."""
    pair = signed_pair(signed_acks=True)
    for number in range(1, 5):
        sent = pair.send(number)
        assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    for engine in pair.engines.values():
        assert engine.context.caches.templates.signatures.hits >= 2
    return pair


def _agree(pair: Network, security: str) -> None:
    text = agreement_text("beta", "alpha", "ebms2", "[security]\nsign = true\n" + security)
    acks = '[ack]\nrequest = "always"\nsignature = "always"\n'
    pair.beta.context.agreements = Agreements([read_toml(text + acks)])


def _is_refused(pair: Network) -> bool:
    sent = pair.send(9)
    taken = pair.take()
    refused = pair.state(sent.message_id) is not OutgoingState.DELIVERED
    assert refused == (sent.message_id not in taken)
    return refused


def test_what_is_learned_goes_on_under_another_agreement_of_the_same_certificate() -> None:
    pair = _taught()
    own = pem(alpha("rsa").certificate)
    _agree(pair, f"require_signature = true\npartner_certificates = ['''{own}''']\n")
    assert not _is_refused(pair)


def test_a_certificate_that_is_revoked_between_two_messages_proves_nothing() -> None:
    pair = _taught()
    own = pem(alpha("rsa").certificate)
    kept = f"partner_certificates = ['''{own}''']\nrevoked = ['''{own}''']\n"
    _agree(pair, "require_signature = true\n" + kept)
    assert _is_refused(pair)


def test_a_certificate_that_was_replaced_between_two_messages_proves_nothing() -> None:
    pair = _taught()
    new = pem(issue("alpha", "p256").certificate)
    _agree(pair, f"require_signature = true\npartner_certificates = ['''{new}''']\n")
    assert _is_refused(pair)


def test_a_certificate_that_has_run_out_between_two_messages_proves_nothing() -> None:
    pair = _taught()
    for engine in pair.engines.values():
        assert isinstance(engine.context.world, TestWorld)
        engine.context.world.time += 366 * DAY
    assert _is_refused(pair)


def test_what_somebody_changes_after_it_was_learned_is_refused() -> None:
    pair = _taught()
    assert len(pair.take()) == 4
    pair.lose_request = lambda post: True
    sent = pair.send(9, b"order 9")
    with pair.alpha.context.store.transition() as tx:
        stored = tx.outgoing_parcel(sent.message_id)
    assert stored is not None
    body = b"".join(part for part in stored.body if isinstance(part, bytes))
    for old in (b"order 9", b">talk<", b"cid:order-9", b"order-9@alpha"):
        assert old in body
        changed = body.replace(old, old[:-1] + b"x")
        pair.deliver("beta", Parcel(stored.content_type, changed))
    assert pair.take() == []
    pair.deliver("beta", Parcel(stored.content_type, body))
    assert pair.take() == [sent.message_id]
