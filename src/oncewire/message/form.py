"""The form two parties agreed their messages take on the wire, the words of that, and bounds.

`agreement/` fills these values, and `wire/` and `protocol/` obey them. They live here because none
of these packages may import another, and all speak of messages.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

# Bounds of every message, whatever was agreed.

ID_LENGTH_MAX = 255
"""Longer ids are refused: they serve no one and flood logs and indexes."""

PAYLOADS_MAX = 100
"""Payloads of one message, at most: what is sent has no more, and what is read may have as many."""


class Dialect(StrEnum):
    """The three wire formats. Only `wire/` acts on it; elsewhere it is a label."""

    EBMS2 = "ebms2"
    MS_09X = "ms-0.9x"
    RM_078 = "rm-0.78"


class SyncReplyMode(StrEnum):
    """What comes back on the same connection (C31): the five values of CPPA 2.0.

    The sync paper's AcksOnly, ResponseOnly and AcksAndResponse are the second, fourth
    and fifth of them.
    """

    NONE = "none"
    MSH_SIGNALS_ONLY = "mshSignalsOnly"
    SIGNALS_ONLY = "signalsOnly"
    RESPONSE_ONLY = "responseOnly"
    SIGNALS_AND_RESPONSE = "signalsAndResponse"


class AckRequest(StrEnum):
    """Whether an Acknowledgment element is asked for, and of which kind (ACK-13)."""

    NONE = "None"
    UNSIGNED = "Unsigned"
    SIGNED = "Signed"


class ReliableMessagingMethod(StrEnum):
    """Who provides the reliability: this protocol or the transport (RM-5, RM-7)."""

    EBXML = "ebXML"
    TRANSPORT = "Transport"


class Validation(StrEnum):
    """What happens when a header breaks the official schema
    (docs/explanation/decisions.md#real-partners)."""

    ENFORCE = "enforce"
    REPORT = "report"
    OFF = "off"


class SoapActionCheck(StrEnum):
    """Whether a SOAPAction other than the agreed one is refused."""

    STRICT = "strict"
    ANY = "any"


class Base64Check(StrEnum):
    """What characters that do not belong into base64 lead to (RFC 2045 §6.8)."""

    STRICT = "strict"
    LENIENT = "lenient"


class UnknownCpa(StrEnum):
    """How a message under an unknown agreement is answered."""

    FAULT = "fault"
    ERROR = "error"


class UnknownRef(StrEnum):
    """What becomes of a message whose RefToMessageId names nothing we know."""

    ERROR = "error"
    IGNORE = "ignore"


class SecurityOrder(StrEnum):
    """Which of the two is done first to a payload. ebMS 2.0 signs what is meant and then closes it
    (persistent confidentiality); the other order signs what travels. Both are read."""

    SIGN_FIRST = "sign_first"
    ENCRYPT_FIRST = "encrypt_first"


class EncryptionSyntax(StrEnum):
    """What an encrypted payload looks like."""

    XML = "xml"
    SMIME = "smime"


class Extension(StrEnum):
    """Features of the drafts that ebMS 2.0 lacks; each travels only when agreed
    (docs/explanation/decisions.md#extensions)."""

    SPLIT = "split"
    HOP_SEQUENCE = "hop_sequence"
    ROUTING = "routing"
    COMPRESSION = "compression"
    TRANSIENT_ERROR = "transient_error"


class PartsForm(StrEnum):
    """How a document that is too large for one message travels (docs/howto/documents.md)."""

    SPLIT = "split"  # parts that say which of how many they are, and of which document
    MID = "mid"  # NHS Spine: fragments, and a message whose Manifest names theirs


FRAGMENT_ACTION = "COPC_IN000001UK01"
"""The action of messages that carry a fragment, where nothing else is agreed: "common content" of
NHS Spine."""


class Form(Struct, frozen=True, gc=False):
    """How messages under one agreement look, and how tolerant their reader is."""

    dialect: Dialect = Dialect.EBMS2
    # Acknowledgment/@type and Action = type, as the CBF chapter has it (C9, C10).
    ack_typed: bool = False
    # `{service}` and `{action}` are filled in; NHS Spine wants them, others a constant.
    soap_action: str = '"ebXML"'
    soap_action_check: SoapActionCheck = SoapActionCheck.ANY
    validation: Validation = Validation.REPORT
    base64: Base64Check = Base64Check.STRICT
    unknown_cpa: UnknownCpa = UnknownCpa.ERROR
    unknown_ref: UnknownRef = UnknownRef.IGNORE
    extensions: frozenset[Extension] = frozenset()
    parts: PartsForm = PartsForm.SPLIT
    fragment_action: str = FRAGMENT_ACTION

    @property
    def splits(self) -> bool:
        """Whether a document may travel in several messages at all."""
        return self.parts is PartsForm.MID or self.carries(Extension.SPLIT)

    def carries(self, extension: Extension) -> bool:
        """Whether a feature can travel: by the dialect itself, or because that was agreed."""
        return extension in self.extensions or extension in _CARRIES[self.dialect]

    def carries_in_header(self, extension: Extension) -> bool:
        """Whether a feature stands in the header, where a signature covers it; the drafts say of a
        payload what they say beside it, whatever else is agreed."""
        return extension in self.extensions and extension not in _CARRIES[self.dialect]


# What each wire format carries by itself; ebMS 2.0 needs our extension
# (docs/explanation/decisions.md#extensions).
_CARRIES = {
    Dialect.EBMS2: frozenset[Extension](),
    Dialect.MS_09X: frozenset(Extension),
    Dialect.RM_078: frozenset(Extension),
}


class Security(Struct, frozen=True, gc=False):
    """What must be signed or encrypted, how, and with whose certificates."""

    sign: bool = False
    # Messages of the partner must be signed; an unsigned one is a SecurityFailure.
    require_signature: bool = False
    encrypt: bool = False
    signature_algorithm: str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
    digest_algorithm: str = "http://www.w3.org/2001/04/xmlenc#sha256"
    canonicalization: str = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
    encryption_algorithm: str = "http://www.w3.org/2009/xmlenc11#aes256-gcm"
    key_transport: str = "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p"
    allow_sha1: bool = False
    order: SecurityOrder = SecurityOrder.SIGN_FIRST
    encryption_syntax: EncryptionSyntax = EncryptionSyntax.XML
    # Content keys wrapped by rsa-1_5 are read too; which one we write, `key_transport` says.
    allow_rsa_1_5: bool = False
    # The partner's certificates, DER; two may be valid at once during a roll-over.
    partner_certificates: tuple[bytes, ...] = ()
    partner_encryption_certificates: tuple[bytes, ...] = ()
    trust_anchors: tuple[bytes, ...] = ()
    revocation_lists: tuple[bytes, ...] = ()
    # Certificates that are believed no more, not even under an agreement that named them.
    revoked: tuple[bytes, ...] = ()
