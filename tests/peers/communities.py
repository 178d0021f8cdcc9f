"""The communities' handlers that speak ebMS 2.0: Digikoppeling, NHS Spine, PHINMS."""

from __future__ import annotations

import base64

from tests.peers.peer import Peer, Said, multipart

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
XLINK = "http://www.w3.org/1999/xlink"
ACTOR = "urn:oasis:names:tc:ebxml-msg:actor"


class Digikoppeling(Peer):
    """osb-rm, as ebms-core does it: acknowledgements stand alone, the next handler is never asked,
    OINs and roles are said, and the SOAPAction is ebXML and nothing else."""

    PROFILE = "digikoppeling-osb-rm"
    AGREEMENT = (
        'cpa_id = "cpaStubEBF.rm"\nprofile = "digikoppeling-osb-rm"\n'
        '[own]\nparty_id = "00000000000000000001"\ntype = "urn:osb:oin"\nrole = "OVERHEID"\n{own}'
        '[partner]\nparty_id = "00000000000000000002"\ntype = "urn:osb:oin"\nrole = "DIGIPOORT"\n'
        "{partner}"
    )
    _IDS = ("00000000000000000002", "DIGIPOORT", "00000000000000000001", "OVERHEID")

    def _header(self, message_id: str, action: str, referred: str = "", more: str = "") -> str:
        own, role, other, other_role = self._IDS
        service = '<ns2:Service ns2:type="urn:osb:services">osb:afleveren:1.1$1.0</ns2:Service>'
        if action == "Acknowledgment":
            service = "<ns2:Service>urn:oasis:names:tc:ebxml-msg:service</ns2:Service>"
        return (
            '<?xml version="1.0" encoding="UTF-8" standalone="no"?>'
            f'<SOAP-ENV:Envelope xmlns:SOAP-ENV="{SOAP}"><SOAP-ENV:Header>'
            f'<ns2:MessageHeader xmlns:ns2="{EB}" SOAP-ENV:mustUnderstand="1" ns2:version="2.0">'
            f'<ns2:From><ns2:PartyId ns2:type="urn:osb:oin">{own}</ns2:PartyId>'
            f"<ns2:Role>{role}</ns2:Role></ns2:From>"
            f'<ns2:To><ns2:PartyId ns2:type="urn:osb:oin">{other}</ns2:PartyId>'
            f"<ns2:Role>{other_role}</ns2:Role></ns2:To><ns2:CPAId>cpaStubEBF.rm</ns2:CPAId>"
            f"<ns2:ConversationId>talk</ns2:ConversationId>{service}"
            f"<ns2:Action>{action}</ns2:Action><ns2:MessageData>"
            f"<ns2:MessageId>{message_id}</ns2:MessageId>"
            "<ns2:Timestamp>2026-11-16T03:00:00.123Z</ns2:Timestamp>"
            f"{referred}</ns2:MessageData>{more}"
        )

    def message(self, number: int) -> Said:
        eliminated = "<ns2:DuplicateElimination/></ns2:MessageHeader>"
        envelope = (
            self._header(f"order-{number}@beta", "afleveren", more=eliminated)
            + f'<ns2:AckRequested xmlns:ns2="{EB}" SOAP-ENV:actor="{ACTOR}:toPartyMSH" '
            'SOAP-ENV:mustUnderstand="1" ns2:signed="false" ns2:version="2.0"/></SOAP-ENV:Header>'
            f'<SOAP-ENV:Body><ns2:Manifest xmlns:ns2="{EB}" ns2:version="2.0">'
            f'<ns2:Reference xmlns:ns3="{XLINK}" ns3:href="cid:1" ns3:type="simple"/>'
            "</ns2:Manifest></SOAP-ENV:Body></SOAP-ENV:Envelope>"
        )
        part = ("Content-ID: <1>\r\nContent-Type: text/plain", f"order {number}")
        return multipart(envelope, "0", "text/xml; charset=UTF-8", part)

    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        referred = f"<ns2:RefToMessageId>{message_id}</ns2:RefToMessageId>"
        envelope = (
            self._header(f"ack-{message_id}", "Acknowledgment", referred, "</ns2:MessageHeader>")
            + f'<ns2:Acknowledgment xmlns:ns2="{EB}" SOAP-ENV:actor="{ACTOR}:toPartyMSH" '
            'SOAP-ENV:mustUnderstand="1" ns2:version="2.0">'
            f"<ns2:Timestamp>2026-11-16T03:00:01.456Z</ns2:Timestamp>{referred}"
            f'<ns2:From><ns2:PartyId ns2:type="urn:osb:oin">{self._IDS[0]}</ns2:PartyId>'
            f"<ns2:Role>{self._IDS[1]}</ns2:Role></ns2:From></ns2:Acknowledgment>"
            "</SOAP-ENV:Header><SOAP-ENV:Body/></SOAP-ENV:Envelope>"
        )
        return Said("text/xml; charset=UTF-8", envelope.encode())

    def minds(self, body: bytes, headers: dict[str, str]) -> str:
        if headers.get("SOAPAction") != '"ebXML"':
            return f"SOAPAction is {headers.get('SOAPAction')}"
        if b"nextMSH" in body:
            return "NotSupported: the next handler is asked"
        for word in (b"OVERHEID", b"DIGIPOORT", b"DuplicateElimination", b":AckRequested"):
            if word not in body:
                return f"{word.decode()} is missing"
        return ""


class Spine(Peer):
    """NHS Spine, asynchronous reliable: the acknowledgement is in the HTTP response, and payloads
    come in base64 with quotation marks around it."""

    PROFILE = "nhs-async-reliable"
    STATUS = 202
    SYNCHRONOUS = True
    ACK_ACTOR = "toPartyMSH"
    ASKS = (
        '<eb:SyncReply soap:mustUnderstand="1" eb:version="2.0" '
        'soap:actor="http://schemas.xmlsoap.org/soap/actor/next"/>'
    )
    AGREEMENT = (
        'cpa_id = "S1001A1630"\nprofile = "{profile}"\n'
        '[own]\nparty_id = "YEA-0000806"\ntype = "urn:nhs:names:partyType:ocs+serviceInstance"\n'
        '{own}[partner]\nparty_id = "TESTGEN-201324"\n'
        'type = "urn:nhs:names:partyType:ocs+serviceInstance"\n{partner}'
    )

    def _envelope(
        self, message_id: str, service: str, action: str, referred: str, rest: str
    ) -> str:
        def party(name: str, value: str) -> str:
            kind = "urn:nhs:names:partyType:ocs+serviceInstance"
            return (
                f"\n            <eb:{name}>\n                "
                f'<eb:PartyId eb:type="{kind}">{value}</eb:PartyId>\n            </eb:{name}>'
            )

        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<soap:Envelope xmlns:xsi="http://www.w3c.org/2001/XML-Schema-Instance"\n'
            f'               xmlns:soap="{SOAP}"\n               xmlns:eb="{EB}"\n'
            '               xmlns:hl7ebxml="urn:hl7-org:transport/ebXML/DSTUv1.0" '
            f'xmlns:xlink="{XLINK}">\n    <soap:Header>\n'
            '        <eb:MessageHeader eb:version="2.0" soap:mustUnderstand="1">'
            f"{party('From', 'TESTGEN-201324')}{party('To', 'YEA-0000806')}\n"
            "            <eb:CPAId>S1001A1630</eb:CPAId>\n"
            "            <eb:ConversationId>79F49A34-9798-404C-AEC4</eb:ConversationId>\n"
            f"            <eb:Service>{service}</eb:Service>\n"
            f"            <eb:Action>{action}</eb:Action>\n            <eb:MessageData>\n"
            f"                <eb:MessageId>{message_id}</eb:MessageId>\n"
            "                <eb:Timestamp>2026-11-16T03:00:00Z</eb:Timestamp>\n"
            f"{referred}            </eb:MessageData>\n{rest}"
        )

    def message(self, number: int) -> Said:
        rest = (
            "            <eb:DuplicateElimination/>\n        </eb:MessageHeader>\n"
            '        <eb:AckRequested soap:mustUnderstand="1" eb:version="2.0" eb:signed="false" '
            f'soap:actor="{ACTOR}:{self.ACK_ACTOR}"/>\n        {self.ASKS}\n    </soap:Header>\n'
            '    <soap:Body>\n        <eb:Manifest soap:mustUnderstand="1" eb:version="2.0">\n'
            '            <eb:Reference xlink:href="cid:part@spine.nhs.uk">\n'
            '                <eb:Description xml:lang="en">HL7 payload</eb:Description>\n'
            '                <hl7ebxml:Payload style="HL7" encoding="XML" version="3.0"/>\n'
            "            </eb:Reference>\n        </eb:Manifest>\n"
            "    </soap:Body>\n</soap:Envelope>"
        )
        envelope = self._envelope(f"order-{number}@beta", "urn:nhs:services", "PSIS", "", rest)
        encoded = base64.b64encode(f"order {number}".encode()).decode()
        kind = "Content-Type: text/plain\r\nContent-Transfer-Encoding: base64"
        part = (f"Content-Id: <part@spine.nhs.uk>\r\n{kind}", f'"{encoded}"')
        said = multipart(envelope, "ebXMLHeader@spine.nhs.uk", "text/xml; charset=UTF-8", part)
        return Said(said.content_type, said.body, "urn:nhs:services/PSIS")

    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        referred = f"                <eb:RefToMessageId>{message_id}</eb:RefToMessageId>\n"
        rest = (
            '        </eb:MessageHeader>\n        <eb:Acknowledgment eb:version="2.0" '
            f'soap:mustUnderstand="1"\n soap:actor="{ACTOR}:{self.ACK_ACTOR}">\n'
            "            <eb:Timestamp>2026-11-16T03:00:00Z</eb:Timestamp>\n"
            f"            <eb:RefToMessageId>{message_id}</eb:RefToMessageId>\n"
            "            <eb:From>\n"
            '                <eb:PartyId eb:type="urn:nhs:names:partyType:ocs+serviceInstance">'
            "TESTGEN-201324</eb:PartyId>\n            </eb:From>\n        </eb:Acknowledgment>\n"
            "    </soap:Header>\n    <soap:Body/>\n</soap:Envelope>"
        )
        service = "urn:oasis:names:tc:ebxml-msg:service"
        envelope = self._envelope(f"ACK-{message_id}", service, "Acknowledgment", referred, rest)
        action = f"{service}/Acknowledgment"
        return Said("text/xml", envelope.encode(), action)

    def minds(self, body: bytes, headers: dict[str, str]) -> str:
        if headers.get("SOAPAction", "").strip('"') != "urn:test:orders/New":
            return f"SOAPAction is {headers.get('SOAPAction')}, not service/action"
        if self.ASKS and b":SyncReply" not in body:
            return "no SyncReply, so where should the acknowledgement go"
        return "" if self.ACK_ACTOR.encode() in body else f"{self.ACK_ACTOR} is not asked"


class SpineForwarding(Spine):
    """The same as intermediary: the next handler acknowledges, on a connection of its own."""

    PROFILE = "nhs-forward-reliable"
    SYNCHRONOUS = False
    ACK_ACTOR = "nextMSH"
    ASKS = ""


class Phinms(Peer):
    """PHINMS 3: it answers in the HTTP response without being asked to, with a status part beside
    the acknowledgement, an empty To, two references, and times without a zone."""

    PROFILE = "phinms"
    STATUS = 200
    SYNCHRONOUS = True
    AGREEMENT = (
        'cpa_id = "self"\nprofile = "phinms"\nany_cpa_id = true\n'
        '[own]\nparty_id = "slhw0008"\ntype = "zz"\n{own}'
        '[partner]\nparty_id = "SLHW0224"\ntype = "zz"\n{partner}'
    )

    def _envelope(self, to: str, service: str, data: str, rest: str) -> str:
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<soap-env:Envelope xmlns:soap-env="{SOAP}" xmlns:SOAP="{SOAP}" '
            f'xmlns:xlink="{XLINK}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
            f'xmlns:eb="{EB}"><soap-env:Header><eb:MessageHeader xmlns:eb="{EB}" '
            'soap-env:mustUnderstand="1" eb:version="2.0"><eb:From><eb:PartyId eb:type="zz">'
            f'SLHW0224</eb:PartyId></eb:From><eb:To><eb:PartyId eb:type="zz">{to}</eb:PartyId>'
            "</eb:To><eb:CPAId>self</eb:CPAId><eb:ConversationId>1290090765105"
            f"</eb:ConversationId>{service}<eb:MessageData>{data}</eb:MessageData>"
            f"</eb:MessageHeader>{rest}</soap-env:Envelope>"
        )

    def message(self, number: int) -> Said:
        data = (
            f"<eb:MessageId>order-{number}@beta</eb:MessageId>"
            "<eb:Timestamp>2026-11-16T03:00:00</eb:Timestamp>"
        )
        rest = (
            '<eb:AckRequested eb:signed="false" eb:version="2.0" '
            f'soap-env:actor="{ACTOR}:toPartyMSH" soap-env:mustUnderstand="1"></eb:AckRequested>'
            '</soap-env:Header><soap-env:Body><eb:Manifest eb:version="2.0">'
            '<eb:Reference xlink:href="cid:order@phineas.us" xlink:type="simple"></eb:Reference>'
            '<MetaData xmlns="http://www.cdc.gov/manifest/databaseinfo" '
            'soap-env:mustUnderstand="0"><DatabaseInfo><RecordId>fake.91</RecordId>'
            "</DatabaseInfo></MetaData></eb:Manifest></soap-env:Body>"
        )
        service = '<eb:Service eb:type="string">defaultservice</eb:Service>'
        service += "<eb:Action>defaultaction</eb:Action>"
        envelope = self._envelope("slhw0008", service, data, rest)
        part = ("Content-ID: <order@phineas.us>\r\nContent-Type: text/plain", f"order {number}")
        return multipart(envelope, "ebxml-envelope@cdc.gov", "text/xml", part)

    def acknowledgement(self, message_id: str, request: bytes) -> Said:
        data = (
            f"<eb:MessageId>status-{message_id}</eb:MessageId>"
            "<eb:Timestamp>2026-11-16T03:00:00</eb:Timestamp>"
            "<eb:RefToMessageId>statusResponse@cdc.gov</eb:RefToMessageId>"
            f"<eb:RefToMessageId>{message_id}</eb:RefToMessageId>"
        )
        rest = (
            f'<eb:Acknowledgment xmlns:eb="{EB}" soap-env:mustUnderstand="1" eb:version="2.0">'
            "<eb:Timestamp>2026-11-16T03:00:00</eb:Timestamp>"
            f"<eb:RefToMessageId>{message_id}</eb:RefToMessageId></eb:Acknowledgment>"
            f'</soap-env:Header><soap-env:Body><eb:Manifest xmlns:eb="{EB}" eb:version="2.0">'
            '<eb:Reference xlink:href="cid:statusResponse@cdc.gov" xlink:type="simple"/>'
            "</eb:Manifest></soap-env:Body>"
        )
        service = "<eb:Service>urn:oasis:names:tc:ebxml-msg:service</eb:Service>"
        service += "<eb:Action>Acknowledgment</eb:Action>"
        status = (
            "<response><msh_response><status>InsertSucceeded</status></msh_response></response>"
        )
        part = ("Content-ID: <statusResponse@cdc.gov>\r\nContent-Type: text/xml", status)
        envelope = self._envelope("", service, data, rest)
        return multipart(envelope, "ebxml-envelope@cdc.gov", "text/xml", part)

    def minds(self, body: bytes, headers: dict[str, str]) -> str:
        return "" if b":AckRequested" in body else "no AckRequested"
