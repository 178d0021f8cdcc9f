"""SOAP around ebXML: the SOAPAction of a message, and the Faults an HTTP 500 carries."""

from __future__ import annotations

from lxml import etree

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message.envelope import Message
from oncewire.message.form import Dialect, Form, SoapActionCheck
from oncewire.wire.ebms2.blocks import BODY, ENVELOPE, FAULT, SOAP
from oncewire.wire.parcel import Fault, FaultDetail, Parcel
from oncewire.wire.xml import Element, local_name, text

# SOAP 1.1 §4.4.1.
FAULT_CODES = ("VersionMismatch", "MustUnderstand", "Client", "Server")
# As NHS Spine writes its errors into a Fault; no standard names them.
_DETAIL_FIELDS = ("codeContext", "errorCode", "severity", "location", "description")


def action_of(message: Message, form: Form) -> str:
    """The SOAPAction a message travels with, `{service}` and `{action}` filled in."""
    action = form.soap_action
    if "{" in action:
        service = message.header.service
        action = action.replace("{service}", service.value if service else "")
        action = action.replace("{action}", message.header.action or "")
    return action


def check_action(stated: str | None, message: Message, form: Form) -> None:
    """Refuse a SOAPAction other than the agreed one, where that was agreed (ebMS 2.0 App. B.2).

    The quotes around it are a matter of taste among senders and carry no meaning.
    """
    # App. B.2 says "ebXML", and NHS Spine writes service and action
    # (docs/explanation/decisions.md#real-partners); so it is agreed.
    if form.soap_action_check is SoapActionCheck.ANY or message.dialect is not Dialect.EBMS2:
        return
    wanted = action_of(message, form)
    if stated is None or stated.strip().strip('"') != wanted.strip('"'):
        said = "there is none" if stated is None else f"it is {stated.strip()[:128]}"
        raise SoapFault(
            "Client", f"SOAPAction must be {wanted}, {said}", remedy="send the agreed SOAPAction"
        )


def fault_of(root: Element) -> Fault | None:
    """The Fault in a parsed envelope, if it is one."""
    if root.tag != ENVELOPE:
        return None
    body = root.find(BODY)
    element = body.find(FAULT) if body is not None else None
    if element is None:
        return None
    # By local name: in SOAP 1.1 the children of a Fault have no namespace, but some give them one.
    codes: set[str] = set()
    string = ""
    actor: str | None = None
    details: tuple[FaultDetail, ...] = ()
    for child in element:
        name = local_name(child)
        words = (child.text or "").strip()[:1024]
        if name == "faultcode":
            # The prefix is the sender's own; subcodes follow a dot.
            codes.add(words.rpartition(":")[2].partition(".")[0])
        elif name == "faultstring":
            string = words
        elif name == "faultactor":
            actor = words or None
        elif name == "detail":
            details = _details(child)
    # A Fault that does not say why, or says it twice and otherwise, is taken as the server's: that
    # one may be tried again (SOAP 1.1 §4.4.1).
    (code,) = codes if len(codes) == 1 else ("Server",)
    return Fault(code or "Server", string, actor, details)


def _details(element: Element) -> tuple[FaultDetail, ...]:
    found = []
    for item in element.iter(etree.Element):
        fields = {
            local_name(child): (child.text or "").strip()[:1024]
            for child in item
            if local_name(child) in _DETAIL_FIELDS
        }
        if fields.get("errorCode"):
            found.append(
                FaultDetail(
                    code=fields["errorCode"],
                    severity=fields.get("severity", ""),
                    description=fields.get("description", ""),
                    code_context=fields.get("codeContext", ""),
                    location=fields.get("location", ""),
                )
            )
    return tuple(found)


def write_fault(error: SoapFault | EbxmlError) -> Parcel:
    """The Fault that answers an error, to be sent with HTTP 500.

    An ebXML error is answered so only when the message was too broken to be addressed; it
    is the sender's fault, so the code is Client.
    """
    code = error.faultcode if isinstance(error, SoapFault) else "Client"
    if code not in FAULT_CODES:
        code = "Server"
    # The problem may quote what was received.
    words = "".join(char if char.isprintable() else " " for char in error.problem)
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<SOAP:Envelope xmlns:SOAP="{SOAP}"><SOAP:Body><SOAP:Fault>'
        f"<faultcode>SOAP:{code}</faultcode><faultstring>{text(words[:1024])}</faultstring>"
        "</SOAP:Fault></SOAP:Body></SOAP:Envelope>"
    )
    return Parcel("text/xml; charset=UTF-8", body.encode())
