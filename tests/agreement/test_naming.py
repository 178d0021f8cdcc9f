"""Whom the ids of a header mean, in whatever order its writer put them."""

from itertools import permutations

import pytest

from oncewire.agreement.agreement import sender_of
from oncewire.message.ids import Party, PartyId
from tests.agreement import samples

VIA = """
[via]
party_id = ["urn:hub", "urn:hub:old"]
uri = "http://hub/msh"
http = "http://hub/msh"
"""


@pytest.mark.requirement("DUP-1")
@pytest.mark.parametrize(
    ("known", "meant"),
    [
        (("urn:strange:b", "urn:strange:a"), ("urn:strange:a", "urn:strange:b")),
        (("urn:hub:old", "urn:strange:a"), ("urn:hub", "urn:hub:old")),
    ],
    ids=["a handler nobody heard of", "the hub"],
)
def test_a_sender_has_one_name_whatever_the_order_of_its_ids(
    known: tuple[str, ...], meant: tuple[str, ...]
) -> None:
    agreement = samples.agreement("ms-0.9x", VIA)
    for order in permutations(known):
        party = Party(tuple(map(PartyId, order)))
        assert tuple(one.value for one in sender_of(agreement, party).ids) == meant
