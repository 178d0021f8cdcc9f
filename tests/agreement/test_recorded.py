"""Digests that stores, journals and partners hold: equal values have equal ones in every version.

Terms are found by their digest, a copy is known by the identity of its message, and a journal is
proved by its chain. A digest below changes only together with what was stored under the old one.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from oncewire.agreement.agreement import ActionBinding
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.toml import write_whole
from oncewire.journal.identity import START, identity_digest, last_head
from oncewire.journal.row import Row
from oncewire.message.envelope import Header, Message, MessageKind, Payload, Split
from oncewire.message.ids import Party, Service
from oncewire.protocol.notes import Kind
from tests.handler.network import agreement_of, agreement_text

RECORDED = {
    "ebms2": (
        "afb20d753abad17b afb20d753abad17b fc0436f879c1f22f 7c200964d48b6bc1 cb34e64c0d7895d0"
    ),
    "cpa": ("d8af8b7119959d9b d8af8b7119959d9b d30538a54615799c 4e4d099c1b137f0f 43b7ddaa1da11d6c"),
    "ms-0.9x": (
        "7709977a3b7b29cc 7709977a3b7b29cc 0fd3a3c24071f6ac 2741fb678efb5fd7 33f32e8a97988a33"
    ),
    "ms-0.9x-typed": (
        "7709977a3b7b29cc 7709977a3b7b29cc 697149156fb73201 ca5734a22296ab35 ef673fb98ded46f9"
    ),
    "window": (
        "aec6e09e3d30c37c aec6e09e3d30c37c 261a14bdba33ac5b a3d3f9de0e06cc6c df4987554379e3f9"
    ),
    "rm-0.78": (
        "1954730900321ce5 1954730900321ce5 c7039563b202d5c1 a9dbc5a92e4d0497 28df3b2a1d695a0e"
    ),
    "fujitsu-2000": (
        "1954730900321ce5 1954730900321ce5 adfc24a670e2758c 76aa461ced2c9fef 96ae64a60c57917b"
    ),
    "fujitsu-window": (
        "aec6e09e3d30c37c aec6e09e3d30c37c 107e52ee1d2e5bba 96f5c6920269d922 cc0d39dc3294c3bc"
    ),
    "digikoppeling-osb-be": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 8ec53ac13bdc93b6 c98d806710c77b50 1fe394ff4aff949a"
    ),
    "digikoppeling-osb-be-s": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 06344d53573ee148 213a5e86d40efe13 9f2965e60e58be81"
    ),
    "digikoppeling-osb-be-e": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 5d480c011b268017 159db6e8e4e2f815 91834b13c5dc6bf2"
    ),
    "digikoppeling-osb-rm": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a c1dd2763b159ac4a f7c2f0660623d2aa 9563f1c1b3d9df85"
    ),
    "digikoppeling-osb-rm-s": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a 14f9af562126f8c5 70549fcaf0d3b32e 83ffd61234424805"
    ),
    "digikoppeling-osb-rm-e": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a d54807af25dc4e96 a557ec30cd5ba93b 2dd3fd6ffc29f5d8"
    ),
    "nhs-express": (
        "825f26b40ac34edf 825f26b40ac34edf c8e4ba6d1ad66593 59d8d2dadd5ba532 8b391dc6a268af9b"
    ),
    "nhs-async-reliable": (
        "3f0bb3fdf95b0e98 3f0bb3fdf95b0e98 4b3f14489e02a622 3c532d223b0a6a7e 3bc9c5216595db50"
    ),
    "nhs-forward-reliable": (
        "2f2836cc80e23a9a 2f2836cc80e23a9a afc31e0a51f09104 251d046bd51f8afa e42fd169a41dd512"
    ),
    "nhs-fragments": (
        "c9a81e67c88a880a c9a81e67c88a880a 94c36c5506a342aa c4785e76771453e6 0af8828f2b2c2088"
    ),
    "norway-smtp": (
        "06c62f15d9f32938 06c62f15d9f32938 cdac559d61ed5829 179db5946d607bbf 657cf8b5bea61548"
    ),
    "norway-http-sync": (
        "7cbfdb505e9b33b4 7cbfdb505e9b33b4 8bcdcf282265b65f e1854af65135b133 a2eabcae58d4da1b"
    ),
    "phinms": (
        "6df9048e3cbdb379 6df9048e3cbdb379 a393e44842fc8455 04e213672db1c71b 20dba942d1ef761e"
    ),
}
"""By profile: the ids of its terms, sent and received; then the digests of its whole agreement, of
a message with its values, and of a journal that tells of both."""


def message(binding: ActionBinding, profile: str) -> Message:
    agreement = agreement_of(agreement_text("alpha", "beta", profile))
    header = Header(
        from_party=Party.of("urn:test:alpha", "urn:types:name", "Buyer"),
        to_party=agreement.partner.party,
        cpa_id=agreement.cpa_id,
        conversation_id=profile,
        service=Service("urn:test:orders", None),
        action="New",
        message_id="order@alpha",
        timestamp=1_767_225_600_000_000,
        time_to_live=binding.terms.persist_duration,
        split=Split("document", 1, 2),
        descriptions=(("en", "an order"),),
    )
    payloads = (Payload.of("order", "text/plain", b"an order"),)
    return Message(agreement.form.dialect, MessageKind.NORMAL, header, payloads=payloads)


def digests(profile: str) -> str:
    agreement = agreement_of(agreement_text("alpha", "beta", profile))
    sending, receiving = agreement.sending.terms, agreement.receiving.terms
    identity = identity_digest(message(agreement.sending, profile))
    detail = json.dumps(sending.as_dict(), separators=(",", ":"))
    rows = [
        Row(1, 2, 3, "boot", "alpha", Kind.TERMS, terms_id=sending.terms_id, detail=detail),
        Row(2, 2, 3, "boot", "alpha", Kind.SUBMITTED, "order@alpha", digest=identity, size=8),
    ]
    whole = hashlib.sha256(write_whole(agreement).encode()).hexdigest()
    head = last_head(START, rows).hex()
    parts = (sending.terms_id, receiving.terms_id, whole[:16], identity[:16], head[:16])
    return " ".join(parts)


@pytest.mark.parametrize("profile", PROFILES)
def test_equal_values_have_the_digests_that_were_recorded(profile: str) -> None:
    assert digests(profile) == RECORDED[profile]


def test_every_profile_is_recorded() -> None:
    assert list(RECORDED) == list(PROFILES)
