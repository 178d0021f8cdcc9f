"""Assemble: from settings to a handler. The one place that picks a store and transports."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.agreement.agreements import Agreements
from oncewire.entry.files import PRIVATE_FOLDER, make_folder, read_bytes
from oncewire.entry.party.agreements import Kept, load_readable
from oncewire.entry.party.itself import agreement_with_itself
from oncewire.entry.party.settings import Settings
from oncewire.entry.running.other_transports import other_transports
from oncewire.entry.running.store_record import (
    find_replaced,
    read_record,
    with_ways_out,
    write_record,
)
from oncewire.entry.running.transports import http_transport
from oncewire.errors import InvalidValue, NotHere, StoreReplaced
from oncewire.handler.engine import Engine
from oncewire.handler.handler import Handler
from oncewire.handler.keys import Keys
from oncewire.handler.kill import KillPoints
from oncewire.handler.node import Node
from oncewire.handler.world import RealWorld
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from oncewire.handler.delivering.application import Application


def store_path(settings: Settings) -> Path:
    """Where the party's database is."""
    return settings.path(settings.store.path)


def open_store(settings: Settings) -> SqliteStore:
    """The party's store, opened as its only writer; made where the party never had one."""
    path = store_path(settings)
    if not path.parent.is_dir():
        make_folder(path.parent, PRIVATE_FOLDER)
    try:
        return SqliteStore.open(
            path,
            node=party_name(settings),
            spool=settings.path(settings.store.spool),
            known=read_record(settings),
            note=partial(write_record, settings),
        )
    except StoreReplaced as replaced:
        raise with_ways_out(replaced, settings) from None


def open_readers(settings: Settings) -> SqliteReaders:
    """Views of the party's store, whoever writes it."""
    path = store_path(settings)
    replaced = find_replaced(settings)
    if replaced is not None:
        raise replaced
    if not path.is_file():
        raise NotHere(
            f"{settings.party.name or 'this party'} has sent and received nothing yet",
            remedy="start its handler with `oncewire serve`, or send something",
        )
    return SqliteReaders(path)


def party_name(settings: Settings) -> str:
    """The node's name, without which nothing can be stored."""
    if not settings.party.name:
        raise InvalidValue("the party has no name", remedy="set party.name in oncewire.toml")
    return settings.party.name


def keys_of(settings: Settings) -> Keys | None:
    """What the party signs with; None where it has no key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from oncewire.entry.party.keys import describe_keys, is_private

    certificate = settings.path(settings.keys.certificate)
    key = settings.path(settings.keys.key)
    if not key.is_file() and not certificate.is_file():
        return None
    # Says in words what is wrong with either file, or that they do not belong together.
    describe_keys(certificate, key)
    if not is_private(key):
        raise InvalidValue(
            f"others on this machine can read the private key {key}", remedy=f"chmod 600 {key}"
        )
    secret = serialization.load_pem_private_key(read_bytes(key, "private key"), None)
    if not isinstance(secret, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise InvalidValue(f"{key} is neither RSA nor EC", remedy="make a key of one of them")
    shown = x509.load_pem_x509_certificate(read_bytes(certificate, "certificate"))
    return Keys(shown, secret)


def in_force(settings: Settings, kept: Iterable[Kept]) -> Agreements:
    """The agreements with partners, and the one by which the handler answers its own party."""
    own = agreement_with_itself(settings)
    found = [known.agreement for known in kept]
    return Agreements(found if own is None else [*found, own])


def make_node(
    settings: Settings,
    store: SqliteStore,
    agreements: tuple[Kept, ...],
    keys: Keys | None,
    *,
    at_rest: bool = False,
) -> Node:
    """The node of a party over an open store."""
    return Node(
        party_name(settings),
        store,
        in_force(settings, agreements),
        RealWorld(),
        keys=keys,
        body_max=settings.http.max_body,
        at_rest=at_rest,
    )


def make_handler(settings: Settings, application: Application | None = None) -> Handler:
    """A handler of the party over its transports, not started yet; it owns the store from here on.

    Everything that can be wrong with files is found before the store is opened.
    """
    agreements = tuple(load_readable(settings).kept)
    keys = keys_of(settings)
    http = http_transport(settings, agreements)
    transports = {http.name: http, **other_transports(settings)}
    kill = KillPoints.from_environment()
    store = open_store(settings)
    try:
        node = make_node(settings, store, agreements, keys)
        return Handler(node, transports, application=application, kill=kill)
    except BaseException:
        store.close()
        raise


def make_engine(settings: Settings) -> Engine:
    """An engine at rest: it stores and confirms, and leaves sending to the next handler."""
    agreements = tuple(load_readable(settings).kept)
    keys = keys_of(settings)
    store = open_store(settings)
    try:
        return Engine(make_node(settings, store, agreements, keys, at_rest=True))
    except BaseException:
        store.close()
        raise
