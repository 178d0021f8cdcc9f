"""Every key of an agreement acts, or `agreement check` says that it does not.

Each key has a case: a scene, what is agreed there, and another value for the key. The handlers
play the scene twice; where the key acts, the two records differ. A key that only the check looks
at has a case as well, and what the check says differs. A new key without a case fails here.
"""

from __future__ import annotations

import pytest

from oncewire.agreement.check.dangers import check
from oncewire.agreement.keys import KEYS, rows
from oncewire.agreement.toml import ENTRY, SIDE, TOP, VIA, read_toml
from oncewire.entry.party.agreements import able
from tests.handler.key_cases import CASES, JUDGED, SHOWN, Case, Judged
from tests.handler.scenes import paper


def known_keys() -> list[str]:
    """Every key there is, by the name an error would call it."""
    tables = (("own", SIDE), ("partner", SIDE), ("via", VIA), ("actions", ENTRY))
    return [*TOP, *(f"{table}.{name}" for table, names in tables for name in names), *KEYS]


def test_every_key_has_a_case() -> None:
    covered = {*(case.key for case in (*CASES, *JUDGED)), *SHOWN}
    assert covered == set(known_keys())


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_another_value_is_another_behaviour(case: Case) -> None:
    before = case.play({})
    assert case.play({}) == before, "the scene does not repeat itself"
    assert case.play(case.change) != before, f"{case.key} changes nothing here"


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: case.key)
def test_what_no_handler_acts_on_is_judged(case: Judged) -> None:
    """The check says something that it does not say without the key, and names the key itself,
    or the one that has to be changed because of it."""
    usual = check(read_toml(paper("alpha", "beta", case.base)), abilities=able())
    agreement = read_toml(paper("alpha", "beta", case.base, {case.key: case.value}))
    found = [one for one in check(agreement, abilities=able()) if one not in usual]
    assert case.names in {one.key for one in found}


@pytest.mark.parametrize("key", SHOWN)
def test_names_are_shown(key: str) -> None:
    agreement = read_toml(paper("alpha", "beta", {key: "A name for people"}))
    assert [row.value for row in rows(agreement) if row.key == key] == ["A name for people"]
