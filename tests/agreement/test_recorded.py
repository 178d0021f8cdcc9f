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
from oncewire.agreement.toml.writer import write_whole
from oncewire.journal.identity import START, identity_digest, last_head
from oncewire.journal.row import Row
from oncewire.message import Header, Message, MessageKind, Party, Payload, Service, Split
from oncewire.protocol.notes import Kind
from tests.handler.pair import agreement_of, agreement_text

RECORDED = {
    "ebms2": (
        "afb20d753abad17b afb20d753abad17b fc0436f879c1f22f 6b9b168aabbc5d22 74a6e73a0a6e4d5a"
    ),
    "cpa": ("d8af8b7119959d9b d8af8b7119959d9b d30538a54615799c 8f078425d4e45cb4 aaaef96dae1e0700"),
    "ms-0.9x": (
        "7709977a3b7b29cc 7709977a3b7b29cc 0fd3a3c24071f6ac 83b39bd1c9fdac7c a111c76896ecacd9"
    ),
    "ms-0.9x-typed": (
        "7709977a3b7b29cc 7709977a3b7b29cc 697149156fb73201 573a02308e7c265c 054ec26b28d8552b"
    ),
    "window": (
        "aec6e09e3d30c37c aec6e09e3d30c37c 261a14bdba33ac5b 6140b68bdeac862f 716e42c0cded1d20"
    ),
    "rm-0.78": (
        "1954730900321ce5 1954730900321ce5 c7039563b202d5c1 f4793887e2c7ad71 fa5937daf9833ae3"
    ),
    "fujitsu-2000": (
        "1954730900321ce5 1954730900321ce5 adfc24a670e2758c aaa33629c0d27089 4cf66c6ca269d4f7"
    ),
    "fujitsu-window": (
        "aec6e09e3d30c37c aec6e09e3d30c37c 107e52ee1d2e5bba 31f51aef21f79d4f 9ebe975aa6a65ba4"
    ),
    "digikoppeling-osb-be": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 8ec53ac13bdc93b6 4191b22dae7c5cd3 c416ff709e135287"
    ),
    "digikoppeling-osb-be-s": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 06344d53573ee148 a47afbd3b5b67298 5ef69534fbe62cad"
    ),
    "digikoppeling-osb-be-e": (
        "4bfa1a65c8c816ab 4bfa1a65c8c816ab 5d480c011b268017 5df444b7531d5c13 5477f730edc6d5df"
    ),
    "digikoppeling-osb-rm": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a c1dd2763b159ac4a 53ff25b8deb40479 cfd2733758a39208"
    ),
    "digikoppeling-osb-rm-s": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a 14f9af562126f8c5 67d7cadbfcfcd515 1c40a70cf0bf0ac0"
    ),
    "digikoppeling-osb-rm-e": (
        "5e904af9ac8edd7a 5e904af9ac8edd7a d54807af25dc4e96 782ba57ad2a0d307 13ff707f25dafcba"
    ),
    "nhs-express": (
        "825f26b40ac34edf 825f26b40ac34edf c8e4ba6d1ad66593 b5d06f7d2b4f7e30 af0a541f04820ea0"
    ),
    "nhs-async-reliable": (
        "3f0bb3fdf95b0e98 3f0bb3fdf95b0e98 4b3f14489e02a622 ae841442aef5b0a1 8b97aaab9593e75e"
    ),
    "nhs-forward-reliable": (
        "2f2836cc80e23a9a 2f2836cc80e23a9a afc31e0a51f09104 120c85ae4f829884 87672e0f74f09061"
    ),
    "nhs-fragments": (
        "c9a81e67c88a880a c9a81e67c88a880a 94c36c5506a342aa 0afc265dfabdff3c 5ac75c7f946c99c4"
    ),
    "norway-smtp": (
        "06c62f15d9f32938 06c62f15d9f32938 cdac559d61ed5829 ab73704246e73df3 5e0ed4910364f931"
    ),
    "norway-http-sync": (
        "7cbfdb505e9b33b4 7cbfdb505e9b33b4 8bcdcf282265b65f 7e01612a714740fd d588664a3146aa72"
    ),
    "phinms": (
        "6df9048e3cbdb379 6df9048e3cbdb379 a393e44842fc8455 91f16606d7c263ef b95f60c336018b09"
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
    return Message(agreement.form.dialect, MessageKind.NORMAL, header, payloads)


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
