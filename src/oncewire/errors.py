"""Every error Oncewire raises, and what each means to the operator or caller who reads it.

    OncewireError                 something is wrong; says what, where, and the next step
    ├── InvalidValue              a value breaks its own rule (an id, a number, an interval)
    ├── EbxmlError                would be answered on the wire with an ErrorList
    │   ├── ValueNotRecognized    well-formed, but a value is unknown here
    │   ├── NotSupported          understood, but not offered or not allowed
    │   ├── Inconsistent          contradicts another element or the agreement
    │   ├── OtherXml              any other trouble with the XML
    │   ├── DeliveryFailure       certainly or probably not delivered
    │   ├── TimeToLiveExpired     arrived after its TimeToLive
    │   ├── SecurityFailure       signature, decryption or authorisation
    │   ├── MimeProblem           a part is missing or the MIME frame is broken
    │   ├── UnknownError          anything else
    │   └── TransientError        cannot take it now; says when to try again
    ├── SoapFault                 answered with a SOAP Fault instead of an ErrorList
    ├── AgreementProblem          an agreement that cannot be read or contradicts itself
    ├── StoreProblem              the store cannot keep what it was given
    │   ├── StoreFull             no space; nothing was acknowledged
    │   ├── StoreGone             the database cannot be reached
    │   │   └── StoreCorrupt      the database is damaged, and only a restore helps
    │   ├── StoreDamaged          one stored thing cannot be read back; the rest can
    │   ├── StoreReplaced         not the store that was used here: empty, gone, foreign or older
    │   └── SpoolElsewhere        the documents of the store lie in another spool than the one here
    ├── HandlerFailed             the handler met a fault of its own and ends
    ├── TransportProblem          a transport cannot be used as configured
    ├── JournalProblem            rows of another version, or rows that cannot be
    ├── NotHere                   a file, partner, agreement or channel that was named is not here
    ├── UnknownMessage            no message with that id here
    └── NotAllowed                the operation is refused in the present state

An `EbxmlError` knows its wire code, severity and location, so that the handler answers
with exactly what was raised and no layer translates errors twice.
"""

from __future__ import annotations

from typing import ClassVar

# The version of the product stands here because every package may import this module.
__version__ = "0.1.0"


class OncewireError(Exception):
    """The root: `problem` says what is wrong and where, `remedy` the reader's next step."""

    def __init__(self, problem: str, *, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem} ({self.remedy})" if self.remedy else self.problem


class InvalidValue(OncewireError, ValueError):
    """A value breaks its own rule; raised where the value is made."""


class EbxmlError(OncewireError):
    """A fault of a message that its sender is told about in an ErrorList."""

    code: ClassVar[str] = "Unknown"

    def __init__(
        self, problem: str, *, location: str = "", severity: str = "Error", remedy: str = ""
    ) -> None:
        super().__init__(problem, remedy=remedy)
        self.location = location
        self.severity = severity


class ValueNotRecognized(EbxmlError):
    """The document is valid, but a value in it is unknown here (CPAId, Service, party)."""

    code = "ValueNotRecognized"


class NotSupported(EbxmlError):
    """The element is understood, but the feature is not offered or not agreed."""

    code = "NotSupported"


class Inconsistent(EbxmlError):
    """The element contradicts another element or the agreement."""

    code = "Inconsistent"


class OtherXml(EbxmlError):
    """Any other trouble with the XML of the header."""

    code = "OtherXml"


class DeliveryFailure(EbxmlError):
    """The message is certainly (Error) or probably (Warning) not delivered."""

    code = "DeliveryFailure"


class TimeToLiveExpired(EbxmlError):
    """The message arrived after its TimeToLive."""

    code = "TimeToLiveExpired"


class SecurityFailure(EbxmlError):
    """A signature, a decryption or an authorisation did not hold."""

    code = "SecurityFailure"


class MimeProblem(EbxmlError):
    """A part cannot be resolved, or the MIME frame itself is broken."""

    code = "MimeProblem"


class UnknownError(EbxmlError):
    """Anything the other codes do not name."""

    code = "Unknown"


class TransientError(EbxmlError):
    """The receiver cannot take the message now (v0-078 §2.6.6, slides).

    Its severity is Warning so that a partner who does not know the code does not
    treat the message as dead (docs/explanation/decisions.md#extensions).
    """

    code = "TransientError"

    def __init__(
        self, problem: str, *, min_retry_secs: int | None = None, location: str = ""
    ) -> None:
        super().__init__(problem, location=location, severity="Warning")
        self.min_retry_secs = min_retry_secs


class SoapFault(OncewireError):
    """A SOAP processing fault: VersionMismatch, MustUnderstand, Client or Server."""

    def __init__(self, faultcode: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.faultcode = faultcode


class AgreementProblem(OncewireError):
    """An agreement cannot be read, or its values contradict each other."""

    def __init__(self, problem: str, *, key: str = "", remedy: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.key = key
        # What else is wrong with the same agreement.
        self.others: list[AgreementProblem] = []


class StoreProblem(OncewireError):
    """The store cannot keep or give back what was asked; nothing was acknowledged."""


class StoreFull(StoreProblem):
    """There is no space left; the sender is told to come back later."""


class StoreGone(StoreProblem):
    """The database cannot be reached; the sender is told to come back later."""


class StoreCorrupt(StoreGone):
    """The database itself is damaged. Waiting does not help: the party is to be restored."""


class StoreDamaged(StoreProblem):
    """One stored thing cannot be read back as it was written. It is that thing's trouble alone:
    `message_id` or `channel` says whose."""

    def __init__(
        self,
        problem: str,
        *,
        message_id: str | None = None,
        channel: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(problem, remedy=remedy)
        self.message_id = message_id
        self.channel = channel


class StoreReplaced(StoreProblem):
    """The store is not the one that was used here, or an older copy of it. Whatever it does not
    know would happen a second time, so nothing is done with it."""


class SpoolElsewhere(StoreProblem):
    """The spool is not the one that the store's documents lie in. Other handlers could not read
    what this one would put there."""


class HandlerFailed(OncewireError):
    """The handler met an unforeseen fault. What it would do next cannot be trusted, so its
    process ends; the next one goes on from what was stored."""

    # For the service manager: anything but 0 is restarted, and this says that it was a fault.
    exit_code: ClassVar[int] = 70


class TransportProblem(OncewireError):
    """A transport cannot be used as configured (address, certificate, permission)."""


class JournalProblem(OncewireError):
    """Journal rows of another version, or rows that cannot be read."""


class NotHere(OncewireError):
    """What was named is not here: a file, a folder, a partner, an agreement, a channel."""


class UnknownMessage(OncewireError):
    """No message with that id is kept here."""


class NotAllowed(OncewireError):
    """The operation is refused in the present state; nothing was changed."""


EBXML_ERRORS: dict[str, type[EbxmlError]] = {
    error.code: error
    for error in (
        ValueNotRecognized,
        NotSupported,
        Inconsistent,
        OtherXml,
        DeliveryFailure,
        TimeToLiveExpired,
        SecurityFailure,
        MimeProblem,
        UnknownError,
    )
}
"""The nine codes of ebMS 2.0 §4.2.3.4, by their word on the wire."""
