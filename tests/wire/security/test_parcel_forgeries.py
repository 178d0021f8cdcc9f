"""Whatever is done to a signed message on its way: refused, or seen as its sender wrote it."""

from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from oncewire.errors import OncewireError
from oncewire.message.envelope import Message
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.codec import read_verified
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import signature_parts
from oncewire.wire.security.signature import SigningChoice
from tests.wire.security import keys, parcel_forger
from tests.wire.security.parcel_forger import EVIL

PARTNER = Trust((keys.alpha().certificate,))


def view(parcel: Parcel, trust: Trust = PARTNER) -> Message:
    """What is believed of a message: the signed header and parts, as an application sees them.

    What every hop writes anew is no part of it, nor is the media type of a payload: no signature
    covers these.
    """
    received = codec.read(parcel)
    verified = signature.verify_signature(
        received.envelope, signature_parts(received), trust, keys.NOW
    )
    message = read_verified(received, verified).message
    payloads = tuple(replace(payload, media_type="") for payload in message.payloads)
    return replace(message, payloads=payloads, routing=())


def refused(parcel: Parcel, trust: Trust = PARTNER) -> bool:
    try:
        view(parcel, trust)
    except OncewireError:
        return True
    return False


def outcome(parcel: Parcel, good: Message) -> str:
    """refused, or equal; anything else is a hole."""
    try:
        seen = view(parcel)
    except OncewireError as problem:
        # A sentence for whoever reads the log, never a copy of what a stranger sent.
        return "refused" if len(str(problem)) < 1_000 else f"told at length: {problem}"
    return "equal" if seen == good else f"seen: {seen}"


def test_the_good_messages_are_believed() -> None:
    for name, parcel in parcel_forger.goods().items():
        message = view(parcel)
        assert [one.data for one in message.payloads] == [
            one.data for one in parcel_forger.PAYLOADS
        ], name


@pytest.mark.long
def test_no_forgery_is_seen_as_anything_but_the_original() -> None:
    goods = {name: view(parcel) for name, parcel in parcel_forger.goods().items()}
    made = list(parcel_forger.forgeries())
    assert len({forgery.parcel for forgery in made}) == len(made) >= 500
    verdicts = Counter[str]()
    for forgery in made:
        name = forgery.how.rpartition(", ")[2]
        verdict = outcome(forgery.parcel, goods.get(name, goods["ebms2"]))
        assert verdict in ("refused", "equal"), forgery.how
        verdicts[verdict] += 1
    print(f"{len(made)} forgeries: {dict(verdicts)}")
    # Comments, spellings and parts more: some must get through, or the forger is too weak.
    assert verdicts["equal"] >= 50
    assert verdicts["refused"] >= 400


def test_a_certificate_that_ended_signs_nothing() -> None:
    who = parcel_forger.expired()
    for dialect in Dialect:
        parcel = parcel_forger.message(dialect, who, SigningChoice("ecdsa-sha256"))
        assert refused(parcel, Trust((who.certificate,)))
        assert refused(parcel, Trust((who.certificate, keys.alpha().certificate)))


# --- every single bit --------------------------------------------------------------------------


def _flips(parcel: Parcel, bits: Iterable[int]) -> Counter[str]:
    good = view(parcel)
    verdicts = Counter[str]()
    for bit in bits:
        body = bytearray(parcel.body)
        body[bit // 8] ^= 1 << bit % 8
        verdict = outcome(replace(parcel, body=bytes(body)), good)
        assert verdict in ("refused", "equal"), f"bit {bit}: {verdict}"
        verdicts[verdict] += 1
    return verdicts


def _small(dialect: Dialect) -> Parcel:
    return parcel_forger.goods()[dialect.value]


@pytest.mark.long
@pytest.mark.parametrize("dialect", Dialect)
def test_a_bit_flip_in_every_byte_of_a_whole_message(dialect: Dialect) -> None:
    # One bit of each byte, another one from byte to byte; the soak run takes all eight.
    parcel = _small(dialect)
    size = len(parcel.body)
    verdicts = _flips(parcel, (byte * 8 + byte % 8 for byte in range(size)))
    print(f"{dialect.value}: {dict(verdicts)} of {size} bytes")
    assert verdicts.total() == size
    assert verdicts["refused"] > size * 0.8


@pytest.mark.soak
@pytest.mark.parametrize("dialect", Dialect)
def test_every_bit_flip_of_a_whole_message(dialect: Dialect) -> None:
    parcel = _small(dialect)
    verdicts = _flips(parcel, range(len(parcel.body) * 8))
    print(f"{dialect.value}: {dict(verdicts)}")
    assert verdicts.total() == len(parcel.body) * 8


def test_the_evil_is_in_many_of_them() -> None:
    """They are forgeries: a reader of the raw bytes would see it."""
    made = list(parcel_forger.forgeries())
    assert sum(EVIL in forgery.parcel.body for forgery in made) >= 400
