"""Reading what crossed a network."""

from __future__ import annotations

from xml.etree import ElementTree

from oncewire.message.envelope import Error, RoutingHeader
from oncewire.message.form import Form
from oncewire.wire import answers, codec
from oncewire.wire.answers import Envelope
from oncewire.wire.parcel import Parcel
from tests.handler.network import Crossing


def names(element: ElementTree.Element) -> list[str]:
    """The names of an element's children, without their namespaces."""
    return [child.tag.rpartition("}")[2] for child in element]


def find(element: ElementTree.Element, *path: str) -> ElementTree.Element | None:
    """The first descendant by names, whatever their namespaces."""
    for name in path:
        found = next((one for one in element.iter() if one.tag.rpartition("}")[2] == name), None)
        if found is None:
            return None
        element = found
    return element


def error_about(crossing: Crossing, *errors: Error) -> Parcel:
    """The message in which beta reports errors in what arrived there."""
    received = crossing.message
    form = Form(dialect=received.dialect)
    hop = received.last_hop
    back = None
    if hop is not None:
        back = RoutingHeader(
            sender_uri=hop.receiver_uri,
            receiver_uri=hop.sender_uri,
            sender_id=hop.receiver_id,
            receiver_id=hop.sender_id,
            timestamp=received.header.timestamp,
        )
    name = f"error-{crossing.message.header.message_id}-{errors[0].code}"
    envelope = Envelope(name, received.header.timestamp, form, hop=back)
    return codec.write(answers.error_message_for(received, errors, envelope), form)
