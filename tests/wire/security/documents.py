"""Envelopes for the tests: one of each kind written out, and any number of odd ones drawn."""

from hypothesis import strategies as st

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
DS = "http://www.w3.org/2000/09/xmldsig#"
NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"
NEXT = "http://schemas.xmlsoap.org/soap/actor/next"
TO_PARTY = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"

HOP_BLOCKS = f"""
  <eb:SyncReply SOAP:mustUnderstand="1" eb:version="2.0" SOAP:actor="{NEXT}"/>
  <eb:AckRequested SOAP:mustUnderstand="1" eb:version="2.0" eb:signed="false"
      SOAP:actor="{NEXT_MSH}"/>
  <rmx:HopSequence xmlns:rmx="urn:oncewire:ext:1" SOAP:mustUnderstand="0"
      SOAP:actor="{NEXT_MSH}" status="Continue" window="8">4711</rmx:HopSequence>"""

PART_ID = "order-1@alpha.example"
PART = b"<order><line>7 boxes</line></order>\r\n"


def envelope(header_extra: str = "", manifest: str = PART_ID, padding: str = "") -> bytes:
    """A request with one payload, unsigned; `header_extra` comes last in the header."""
    reference = (
        f'<eb:Manifest eb:version="2.0"><eb:Reference xlink:type="simple" '
        f'xlink:href="cid:{manifest}"/></eb:Manifest>'
        if manifest
        else ""
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<SOAP:Envelope xmlns:SOAP="{SOAP}" xmlns:eb="{EB}" xmlns:xlink="http://www.w3.org/1999/xlink">
 <SOAP:Header>
  <eb:MessageHeader SOAP:mustUnderstand="1" eb:version="2.0">
   <eb:From><eb:PartyId eb:type="urn:ex:org">alpha</eb:PartyId><eb:Role>Buyer</eb:Role></eb:From>
   <eb:To><eb:PartyId eb:type="urn:ex:org">beta</eb:PartyId><eb:Role>Seller</eb:Role></eb:To>
   <eb:CPAId>alpha-beta-1</eb:CPAId>
   <eb:ConversationId>conv-77</eb:ConversationId>
   <eb:Service>urn:ex:orders</eb:Service>
   <eb:Action>PlaceOrder</eb:Action>
   <eb:MessageData>
    <eb:MessageId>m-1001@alpha.example</eb:MessageId>
    <eb:Timestamp>2026-01-05T10:00:00Z</eb:Timestamp>
   </eb:MessageData>
   <eb:DuplicateElimination/>
   <eb:Description xml:lang="en">seven boxes{padding}</eb:Description>
  </eb:MessageHeader>
  <eb:AckRequested SOAP:mustUnderstand="1" eb:version="2.0" eb:signed="true"
      SOAP:actor="{TO_PARTY}"/>{header_extra}
 </SOAP:Header>
 <SOAP:Body>{reference}</SOAP:Body>
</SOAP:Envelope>""".encode()


_DRAFT_SPACE = "http://www.ebxml.org/namespaces/messageHeader"


def draft(namespace: bool = True, routing: str = "RoutingHeaderList") -> bytes:
    """A message of the 0.9x drafts, with the routing that every hop rewrites."""
    space = f' xmlns="{_DRAFT_SPACE}"' if namespace else ""
    return f"""<ebXMLHeader{space} version="0.93" xmlns:xlink="http://www.w3.org/1999/xlink">
 <Manifest><Reference xlink:type="simple" xlink:href="cid:{PART_ID}"/></Manifest>
 <Header><From><PartyId>alpha</PartyId></From><CPAId>alpha-beta-1</CPAId>
  <MessageData><MessageId>m-1</MessageId></MessageData></Header>
 <{routing}><SenderURI>http://alpha.example/msh</SenderURI></{routing}>
</ebXMLHeader>""".encode()


def template(
    xpath: str | None,
    canonical: str,
    signature: str = f"{DS}hmac-sha256",
    parts: tuple[str, ...] = (),
    digest: str = "http://www.w3.org/2001/04/xmlenc#sha256",
    info_canonical: str = "",
    prefixes: str = "",
    prefix: str = "ds",
    binding: str = "",
) -> str:
    """An empty ds:Signature for the referee to fill."""
    pre = f"{prefix}:" if prefix else ""
    xmlns = f"xmlns:{prefix}" if prefix else "xmlns"
    listed = (
        f'<ec:InclusiveNamespaces xmlns:ec="{EXCLUSIVE}" PrefixList="{prefixes}"/>'
        if prefixes
        else ""
    )
    middle = (
        f'<{pre}Transform Algorithm="http://www.w3.org/TR/1999/REC-xpath-19991116">'
        f"<{pre}XPath {binding}>{xpath}</{pre}XPath></{pre}Transform>"
        if xpath is not None
        else ""
    )
    others = "".join(
        f'<{pre}Reference URI="{uri}"><{pre}DigestMethod Algorithm="{digest}"/>'
        f"<{pre}DigestValue/></{pre}Reference>"
        for uri in parts
    )
    return (
        f'<{pre}Signature {xmlns}="{DS}"><{pre}SignedInfo>'
        f'<{pre}CanonicalizationMethod Algorithm="{info_canonical or canonical}"/>'
        f'<{pre}SignatureMethod Algorithm="{signature}"/>'
        f'<{pre}Reference URI=""><{pre}Transforms>'
        f'<{pre}Transform Algorithm="{DS}enveloped-signature"/>{middle}'
        f'<{pre}Transform Algorithm="{canonical}">{listed}</{pre}Transform></{pre}Transforms>'
        f'<{pre}DigestMethod Algorithm="{digest}"/><{pre}DigestValue/></{pre}Reference>'
        f"{others}</{pre}SignedInfo><{pre}SignatureValue/></{pre}Signature>"
    )


INCLUSIVE = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
HMAC_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256"
XPATH = (
    f'not(ancestor-or-self::node()[@SOAP:actor="{NEXT_MSH}"] | '
    f'ancestor-or-self::node()[@SOAP:actor="{NEXT}"])'
)

# --- odd documents ---------------------------------------------------------------------------

# Characters that canonical XML treats specially, and a few from far away.
_CHARACTERS = st.sampled_from(
    ["a", "Z", "0", " ", "\n", "\t", "&#13;", "&#10;", "&#9;", "&lt;", "&gt;", ">", "&amp;",
     "&quot;", "&apos;", "é", "漢", "😀", "&#x1F600;", "&#133;", "-", "]"]
)  # fmt: skip
_TEXT = st.lists(_CHARACTERS, max_size=6).map("".join)
_SPACES = {
    "": ["", "urn:one", "urn:two", DS, SOAP],
    "p": ["urn:one", "urn:two", SOAP],
    "q": ["urn:one", "urn:q"],
    "ds": [DS, "urn:q"],
    "SOAP": [SOAP],
}
_NAMES = st.sampled_from(["a", "b", "longer-name", "MessageHeader"])


@st.composite
def _attributes(draw: st.DrawFn, scope: dict[str, str]) -> str:
    found: dict[tuple[str, str], str] = {}
    for _ in range(draw(st.integers(0, 3))):
        prefix = draw(st.sampled_from(["", "xml", *(p for p in scope if p)]))
        local = draw(st.sampled_from(["lang", "space", "x", "y", "actor"]))
        if prefix == "xml":
            local = draw(st.sampled_from(["lang", "space"]))
            value = {"space": draw(st.sampled_from(["preserve", "default"]))}.get(
                local, draw(st.sampled_from(["no", "en", ""]))
            )
        elif local == "actor":
            value = draw(st.sampled_from([NEXT_MSH, NEXT, TO_PARTY, f" {NEXT}", ""]))
        else:
            value = draw(_TEXT)
        space = {"": "", "xml": "xml"}.get(prefix, scope.get(prefix, ""))
        quote = draw(st.sampled_from(["'", '"']))
        found.setdefault(
            (space, local), f"{prefix + ':' if prefix else ''}{local}={quote}{value}{quote}"
        )
    return " ".join(found.values())


@st.composite
def _bindings(
    draw: st.DrawFn, scope: dict[str, str], prefixes: tuple[str, ...] = tuple(sorted(_SPACES))
) -> tuple[str, dict[str, str]]:
    inner = dict(scope)
    written = []
    for prefix in draw(st.lists(st.sampled_from(prefixes), unique=True, max_size=2)):
        uri = draw(st.sampled_from(_SPACES[prefix]))
        inner[prefix] = uri
        written.append(f'xmlns{":" + prefix if prefix else ""}="{uri}"')
    return " ".join(written), inner


@st.composite
def _element(draw: st.DrawFn, scope: dict[str, str], depth: int) -> str:
    written, inner = draw(_bindings(scope))
    prefix = draw(st.sampled_from(sorted(p for p in inner)))
    tag = f"{prefix}:{draw(_NAMES)}" if prefix else draw(_NAMES)
    attributes = draw(_attributes(inner))
    if inner["SOAP"] == SOAP and "actor" not in attributes and draw(st.integers(0, 3)) == 0:
        attributes += f' SOAP:actor="{draw(st.sampled_from([NEXT_MSH, NEXT]))}"'
    content = draw(_content(inner, depth - 1)) if depth else draw(_TEXT)
    return f"<{tag} {written} {attributes}>{content}</{tag}>"


_ODD = st.sampled_from(
    ["<!-- a comment -->", "<!---->", "<?pi some data?>", "<?pi?>", "<![CDATA[<&>\n]]>",
     "<![CDATA[]]>", "<!-- <a> -->", "\r\n"]
)  # fmt: skip


@st.composite
def _content(draw: st.DrawFn, scope: dict[str, str], depth: int) -> str:
    pieces = st.one_of(_TEXT, _ODD, _element(scope, depth))
    return "".join(draw(st.lists(pieces, max_size=4)))


@st.composite
def odd_envelopes(draw: st.DrawFn, signature: str) -> bytes:
    """A SOAP envelope full of syntax, with the signature somewhere in its header."""
    scope = {"": "", "SOAP": SOAP}
    written, inner = draw(_bindings(scope, ("", "ds", "p", "q")))
    attributes = draw(_attributes(inner)).replace(NEXT_MSH, TO_PARTY).replace(NEXT, TO_PARTY)
    head_written, head_scope = draw(_bindings(inner))
    head = draw(_attributes(head_scope)).replace(NEXT_MSH, TO_PARTY).replace(NEXT, TO_PARTY)
    before, after = draw(_content(head_scope, 3)), draw(_content(head_scope, 2))
    outside = st.sampled_from(["", "<!-- out -->", "<?out side?>", "\n"])
    return (
        f"{draw(outside)}<SOAP:Envelope xmlns:SOAP='{SOAP}' {written} {attributes}>"
        f"<SOAP:Header {head_written} {head}>{before}{signature}{after}</SOAP:Header>"
        f"<SOAP:Body>{draw(_content(inner, 2))}</SOAP:Body></SOAP:Envelope>{draw(outside)}"
    ).encode()
