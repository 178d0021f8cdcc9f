"""xmlsec as the referee: it signs, verifies and digests as the standard says, slowly and in C.

Nothing of the product calls it; it stands here so that our own octets can be compared with its.
"""

import base64
from collections.abc import Mapping

import xmlsec
from lxml import etree

DS = "http://www.w3.org/2000/09/xmldsig#"
_parts: dict[str, bytes] = {}
_registered: list[bool] = []


class _Opened:
    """A part being read: xmlsec asks for the next bytes until there are none."""

    def __init__(self, content: bytes) -> None:
        self.rest = content


def _match(uri: bytes) -> bool:
    return uri.startswith(b"cid:")


def _open(uri: bytes) -> _Opened:
    return _Opened(_parts[uri.decode()])


def _read(opened: _Opened, buffer: memoryview) -> int:
    chunk, opened.rest = opened.rest[: len(buffer)], opened.rest[len(buffer) :]
    buffer[: len(chunk)] = chunk
    return len(chunk)


def _close(_opened: _Opened) -> None:
    return None


def _offer(parts: Mapping[str, bytes]) -> None:
    """Let xmlsec resolve these `cid:` URIs; the callbacks stay registered for the process."""
    if not _registered:
        # The ready-made callbacks come first in its list and would look for a file of that name.
        xmlsec.cleanup_callbacks()
        xmlsec.register_callbacks(_match, _open, _read, _close)
        _registered.append(True)
    _parts.clear()
    _parts.update(parts)


def signature_of(root: etree._Element) -> etree._Element:
    found = root.find(f".//{{{DS}}}Signature")
    assert found is not None
    return found


def hmac_sign(envelope: bytes) -> etree._Element:
    """Fill a signature template with xmlsec and a fixed HMAC secret; hands back the tree."""
    root = etree.fromstring(envelope)
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_binary_data(xmlsec.constants.KeyDataHmac, SECRET)
    context.sign(signature_of(root))
    return root


SECRET = b"a secret for tests only"


def sign(envelope: bytes, key_pem: bytes, parts: Mapping[str, bytes]) -> bytes:
    """The template in the envelope, filled by xmlsec; parts are by URI."""
    _offer(parts)
    root = etree.fromstring(envelope)
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(key_pem, xmlsec.constants.KeyDataFormatPem)
    context.sign(signature_of(root))
    return etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8")


def verifies(envelope: bytes, certificate_pem: bytes, parts: Mapping[str, bytes]) -> bool:
    """Whether xmlsec finds the first signature good with the certificate's key."""
    _offer(parts)
    root = etree.fromstring(envelope)
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(certificate_pem, xmlsec.constants.KeyDataFormatCertPem)
    try:
        context.verify(signature_of(root))
    except xmlsec.Error:
        return False
    return True


def digest_values(root: etree._Element) -> list[bytes]:
    info = signature_of(root).find(f"{{{DS}}}SignedInfo")
    assert info is not None
    return [base64.b64decode(value.text or "") for value in info.iter(f"{{{DS}}}DigestValue")]


def signature_value(root: etree._Element) -> bytes:
    value = signature_of(root).find(f"{{{DS}}}SignatureValue")
    assert value is not None
    return base64.b64decode(value.text or "")
