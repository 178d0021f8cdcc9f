"""Confide: payloads that only the partner may read, where encryption is agreed.

A payload is encrypted before the message is signed, so the signature covers what travels.
It is opened after the signature was checked, so nothing unchecked is decrypted. The stored
bytes stay as they travelled; the identity of a message is that of its plain payloads.
"""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import rsa

from oncewire.errors import AgreementProblem, SecurityFailure
from oncewire.handler.node import Node
from oncewire.message.envelope import Message
from oncewire.message.form import Security
from oncewire.message.payload import Payload
from oncewire.wire.security.certificates import load_certificate
from oncewire.wire.security.decryption import EncryptionPolicy, decrypt_part
from oncewire.wire.security.encryption import DATA_URIS, KEY_URIS, EncryptionChoice, encrypt_part

ENCRYPTED_TYPE = "application/xml"
_MARK = b"EncryptedData"
_HEAD = 512


def encrypt_payloads(message: Message, security: Security) -> Message:
    """The message with its payloads encrypted for the partner."""
    if not security.encrypt or not message.payloads:
        return message
    certificates = security.partner_encryption_certificates or security.partner_certificates
    if not certificates:
        raise AgreementProblem(
            "encryption is agreed, but no certificate of the partner is named",
            key="security.partner_encryption_certificates",
            remedy="name the certificate the partner decrypts with",
        )
    # The newest is named last; an old one stays valid for reading only.
    recipient = load_certificate(certificates[-1])
    choice = EncryptionChoice(
        _name(DATA_URIS, security.encryption_algorithm), _name(KEY_URIS, security.key_transport)
    )
    return replace(
        message,
        payloads=tuple(
            Payload.of(
                payload.content_id,
                ENCRYPTED_TYPE,
                encrypt_part(_content(payload), recipient, payload.media_type, choice),
            )
            for payload in message.payloads
        ),
    )


def _content(payload: Payload) -> bytes:
    if payload.data is None:
        raise SecurityFailure(
            "a payload that is not at hand cannot be encrypted",
            location=f"cid:{payload.content_id}",
        )
    return payload.data


def decrypt_payloads(node: Node, message: Message, security: Security) -> Message:
    """The message with its payloads as the partner meant them."""
    if not security.encrypt or not message.payloads:
        return message
    return replace(
        message, payloads=tuple(_opened(node, payload, security) for payload in message.payloads)
    )


def _opened(node: Node, payload: Payload, security: Security) -> Payload:
    data = _content(payload)
    if _MARK not in data[:_HEAD]:
        raise SecurityFailure(
            "the agreement asks for encrypted payloads, this one is not",
            location=f"cid:{payload.content_id}",
        )
    key = node.keys.signing_key if node.keys is not None else None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise AgreementProblem(
            "encryption is agreed, but this handler has no RSA key to decrypt with",
            key="security.encrypt",
            remedy="give the handler an RSA key and certificate",
        )
    policy = EncryptionPolicy()
    policy = EncryptionPolicy(
        policy.data | {_name(DATA_URIS, security.encryption_algorithm)},
        policy.keys | {_name(KEY_URIS, security.key_transport)},
    )
    plain = decrypt_part(data, key, policy)
    return Payload.of(payload.content_id, plain.mime_type or ENCRYPTED_TYPE, plain.content)


def _name(names: dict[str, str], uri: str) -> str:
    for name, known in names.items():
        if known == uri:
            return name
    raise AgreementProblem(
        f"encryption with {uri!r} is not offered",
        key="security.encryption_algorithm",
        remedy=f"agree on one of {', '.join(sorted(names.values()))}",
    )
