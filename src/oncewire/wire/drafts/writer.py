"""Pieces that both drafts' writers share: manifest, errors, payload references."""

from __future__ import annotations

from oncewire.message import ErrorList, Message, Reference, Split
from oncewire.message.fault import CODE_CONTEXT
from oncewire.wire.drafts import names as n
from oncewire.wire.xml.markup import attribute, identifier, optional_attribute, text
from oncewire.wire.xml.tree import foreign_text

# An element without a namespace would join ours, or be mistaken for it.
_OWN = frozenset({"", n.NAMESPACE})


def manifest(message: Message) -> str:
    """Manifest, when the message has references."""
    if not message.manifest:
        return ""
    references = "".join([_reference(reference) for reference in message.manifest])
    return f'<Manifest xmlns:xlink="{n.XLINK}">{references}</Manifest>'


def _reference(reference: Reference) -> str:
    """One reference, as MS 1.0 has it: the drafts print no manifest."""
    inner = ""
    for location, version in reference.schemas:
        stated = optional_attribute("version", version)
        inner += f'<Schema location="{attribute(location)}"{stated}/>'
    for language, words in reference.descriptions:
        inner += f'<Description xml:lang="{attribute(language)}">{text(words)}</Description>'
    for element in reference.foreign:
        inner += foreign_text(element, _OWN)
    return (
        f'<Reference xlink:type="simple" xlink:href="{attribute(reference.href)}"'
        f"{optional_attribute('xlink:role', reference.role)}"
        f"{optional_attribute('id', reference.id)}>{inner}</Reference>"
    )


def error_list(errors: ErrorList | None) -> str:
    """ErrorList with its MinRetrySecs (gap 3)."""
    if errors is None:
        return ""
    inner = "".join(
        f'<Error errorCode="{attribute(error.code)}" severity="{error.severity.value}"'
        + optional_attribute(
            "codeContext", error.code_context if error.code_context != CODE_CONTEXT else None
        )
        + optional_attribute("location", error.location or None)
        + optional_attribute("errorMessage", error.description or None)
        + "/>"
        for error in errors.errors
    )
    # One for the whole list, so the longest: whoever waits less is turned away again.
    pauses = [e.min_retry_secs for e in errors.errors if e.min_retry_secs is not None]
    pause = f"<MinRetrySecs>{max(pauses)}</MinRetrySecs>" if pauses else ""
    return (
        f'<ErrorList highestSeverity="{errors.highest_severity.value}">{inner}{pause}</ErrorList>'
    )


def split(value: Split | None) -> str:
    """SplitId and SplitNumber inside MessageData (BIG-5)."""
    if value is None:
        return ""
    return (
        f"<SplitId>{identifier(value.split_id)}</SplitId>"
        f'<SplitNumber Total="{value.total}">{value.number}</SplitNumber>'
    )


def foreign(message: Message) -> str:
    """Foreign elements at the end of Header, as their own bytes (HDR-7)."""
    return "".join([foreign_text(element, _OWN) for element in message.header.foreign])
