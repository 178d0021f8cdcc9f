"""The root part of a body and the Fault in it, for tests that look at bytes."""

from oncewire.errors import EbxmlError
from oncewire.wire import codec, soap
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.parcel import Fault, Parcel
from oncewire.wire.security import references
from oncewire.wire.security.references import SignedReference
from oncewire.wire.splice import envelope_in
from oncewire.wire.xml import parse


def envelope_of(parcel: Parcel) -> bytes:
    """The decoded root part, without reading the message."""
    return envelope_in(parcel, DEFAULT_LIMITS)


def read_fault(envelope: bytes) -> Fault | None:
    """The Fault an envelope holds; None when it holds none or is no envelope at all."""
    try:
        root = parse(envelope, None, DEFAULT_LIMITS)
    except EbxmlError:
        return None
    return soap.fault_of(root)


def acknowledged_in(envelope: bytes) -> tuple[SignedReference, ...]:
    """What the Acknowledgment of an envelope says was received."""
    (acknowledgment,) = codec.read_header(envelope).message.acknowledgments
    return tuple(
        references.acknowledged(digest.uri, digest.digest_method, digest.digest_value)
        for digest in acknowledgment.references
    )
