"""The drafts' own handlers: the prototype of 2000, and the slides' proposal with a window."""

from __future__ import annotations

import re

from tests.peers.peer import Peer, Said

_NUMBER = re.compile(rb"<SequenceNumber[^>]*>(\d+)<")
SIDES = '[own]\nparty_id = "urn:test:alpha"\n{own}[partner]\nparty_id = "urn:test:beta"\n{partner}'


def _packed(envelope: str, version: str, document: str = "") -> Said:
    boundary = "=_prototype"
    kind = f'application/vnd.eb+xml; version="{version}"'
    pieces = [
        f'Content-ID: <header@beta>\r\nContent-Type: {kind}; charset="utf-8"\r\n\r\n{envelope}'
    ]
    if document:
        pieces.append(f"Content-ID: <order>\r\nContent-Type: text/plain\r\n\r\n{document}")
    body = "".join(f"--{boundary}\r\n{piece}\r\n" for piece in pieces) + f"--{boundary}--\r\n"
    whole = f'multipart/related; type="application/vnd.eb+xml"; version="{version}"; '
    return Said(f'{whole}boundary="{boundary}"', body.encode())


class Prototype2000(Peer):
    """v0-078: one message at a time, numbered from 1; what is out of turn it throws away, and every
    copy gets an acknowledgement of its own."""

    PROFILE = "fujitsu-2000"
    AGREEMENT = 'cpa_id = "alpha-beta"\nprofile = "fujitsu-2000"\n' + SIDES
    SAME_ANSWER = False
    _expected = 1
    _acks = 0

    def _header(self, kind: str, message_id: str, more: str, semantics: str, hop: str) -> str:
        reference = ""
        if kind == "Normal":
            reference = (
                '<Manifest xmlns:xlink="http://www.w3.org/1999/xlink"><Reference '
                'xlink:type="simple" xlink:href="cid:order"></Reference></Manifest>'
            )
        business = "<ServiceInterface>urn:test:orders</ServiceInterface><Action>New</Action>"
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            f'<ebXMLHeader version="0.21" MessageType="{kind}">'
            f"{reference}<Header><From><PartyId>urn:test:beta</PartyId></From>"
            "<To><PartyId>urn:test:alpha</PartyId></To><TPAInfo><TPAId>alpha-beta</TPAId>"
            f"<ConversationID>talk</ConversationID>{business if reference else ''}</TPAInfo>"
            f"<MessageData><MessageId>{message_id}</MessageId>"
            f"<TimeStamp>20261116T030000Z</TimeStamp>{more}</MessageData>"
            f'<ReliableMessagingInfo DeliverySemantics="{semantics}"/></Header><RoutingHeader>'
            "<SenderID>urn:test:beta</SenderID><ReceiverID>urn:test:alpha</ReceiverID>"
            f"{hop}</RoutingHeader></ebXMLHeader>"
        )

    def message(self, number: int) -> Said:
        hop = f"<SequenceNumber>{number}</SequenceNumber>"
        envelope = self._header("Normal", f"order-{number}@beta", "", "AtMostOnce", hop)
        return _packed(envelope, "0.21", f"order {number}")

    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        self._acks += 1
        more = f"<RefToMessageId>{message_id}</RefToMessageId>"
        said = self._header("Acknowledgement", f"ack-{self._acks}@beta", more, "Unspecified", "")
        return _packed(said, "0.21")

    def accepts(self, message_id: str, body: bytes) -> bool:
        found = _NUMBER.search(body)
        number = int(found[1]) if found else 0
        if message_id in self.answers:
            return True
        if number != self._expected:
            return False
        self._expected += 1
        return True


class WindowProposal(Peer):
    """0.9x with a window of 8: it has buffers for eight messages beyond the next, and throws away
    what does not fit; what comes too early waits, and everything is acknowledged by itself."""

    PROFILE = "fujitsu-window"
    AGREEMENT = 'cpa_id = "alpha-beta"\nprofile = "fujitsu-window"\n' + SIDES
    AT_ONCE = 8
    _WINDOW = 8

    def _header(self, message_id: str, service: str, data: str, quality: str, rest: str) -> str:
        sides = ("urn:test:beta", "urn:test:alpha")
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ebXMLHeader xmlns="http://www.ebxml.org/namespaces/messageHeader" version="0.93">'
            f"{'' if 'RefTo' in data else self._MANIFEST}<Header>"
            f"<From><PartyId>{sides[0]}</PartyId></From><To><PartyId>{sides[1]}</PartyId></To>"
            "<CPAId>alpha-beta</CPAId><ConversationId>talk</ConversationId>"
            f"{service}<MessageData><MessageId>{message_id}</MessageId>"
            f"<Timestamp>{self._stamp()}</Timestamp>{data}</MessageData>"
            f"<QualityOfServiceInfo {quality}/></Header>{rest}</ebXMLHeader>"
        )

    _MANIFEST = (
        '<Manifest xmlns:xlink="http://www.w3.org/1999/xlink"><Reference xlink:type="simple" '
        'xlink:href="cid:order"></Reference></Manifest>'
    )
    _written = 0

    def _stamp(self) -> str:
        """Along a stream each is later than the one before."""
        self._written += 1
        return f"2026-11-16T03:{self._written // 60:02}:{self._written % 60:02}Z"

    def _hop(self, more: str = "") -> str:
        return (
            "<RoutingHeaderList><RoutingHeader>"
            f"<SenderURI>http://127.0.0.1:{self.public}/msh</SenderURI>"
            f"<ReceiverURI>{self.partner}</ReceiverURI><Timestamp>{self._stamp()}</Timestamp>"
            f"{more}</RoutingHeader></RoutingHeaderList>"
        )

    public: int = 0
    _numbers: set[int]

    def message(self, number: int) -> Said:
        status = "Reset" if number == 1 else "Continue"
        hop = self._hop(f'<SequenceNumber Status="{status}">{number - 1}</SequenceNumber>')
        service = "<Service>urn:test:orders</Service><Action>New</Action>"
        quality = 'deliverySemantics="OnceAndOnlyOnce" deliveryReceiptRequested="Unsigned"'
        envelope = self._header(f"order-{number}@beta", service, "", quality, hop)
        return _packed(envelope, "0.93", f"order {number}")

    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        base = "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment"
        service = f"<Service>{base}</Service><Action>Acknowledgment</Action>"
        data = f"<RefToMessageId>{message_id}</RefToMessageId>"
        rest = self._hop() + (
            f'<Acknowledgment signed="false"><Timestamp>{self._stamp()}</Timestamp>'
            "<From><PartyId>urn:test:beta</PartyId></From></Acknowledgment>"
        )
        quality = 'deliverySemantics="BestEffort"'
        return _packed(self._header(f"ack-{message_id}", service, data, quality, rest), "0.93")

    def accepts(self, message_id: str, body: bytes) -> bool:
        found = _NUMBER.search(body)
        number = int(found[1]) if found else -1
        if message_id in self.answers:
            return True
        got = self.__dict__.setdefault("_numbers", set())
        expected = next(one for one in range(10_000) if one not in got)
        if not 0 <= number - expected < self._WINDOW:
            return False
        got.add(number)
        return True
