"""A pair of handlers whose line is tapped: everything that crosses it is kept and can be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.answer import Answer
from oncewire.message.envelope import Error, Message, RoutingHeader
from oncewire.message.form import Form
from oncewire.wire import answers, codec
from oncewire.wire.answers import Envelope
from oncewire.wire.parcel import Parcel
from tests.handler.pair import Pair


@dataclass(frozen=True, slots=True)
class Crossing:
    """One parcel on its way to a handler, and what went back on the same connection."""

    to: str
    parcel: Parcel
    reply: Parcel | None

    @property
    def message(self) -> Message:
        """What the parcel says."""
        return codec.read(self.parcel).message

    @property
    def envelope(self) -> ElementTree.Element:
        """The header document as it stands on the wire."""
        return ElementTree.fromstring(codec.read(self.parcel).envelope)


@dataclass
class Tapped(Pair):
    """alpha sends to beta; `line` holds every parcel in the order of arrival."""

    line: list[Crossing] = field(default_factory=list)

    def deliver(self, name: str, parcel: Parcel) -> Answer:
        """Hand a parcel to a node and keep a copy."""
        place = len(self.line)
        answer = super().deliver(name, parcel)
        reply = None
        if answer.parcel is not None:
            reply = whole_parcel(self.engines[name].context, answer.parcel)
        self.line.insert(place, Crossing(name, parcel, reply))
        return answer

    def to(self, name: str) -> list[Crossing]:
        """What arrived at one side."""
        return [one for one in self.line if one.to == name]


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
