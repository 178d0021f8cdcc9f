"""Damaged journals through Spark: every one of them in one lake, judged in one run."""

from collections import Counter
from pathlib import Path

import pytest

from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.columns import JUDGED, VIOLATIONS
from oncewire.pipeline.lake.lake import Lake
from tests.journal.damages import DAMAGES, Damage
from tests.journal.worlds import NAMES, renamed, rows_of
from tests.pipeline.books import make_export

pytestmark = pytest.mark.spark


def case(name: str) -> str:
    """A finding's case, by the node that it names."""
    return name.partition("/")[0]


def damaged(spark, folder: Path, some: list[Damage]) -> Lake:
    """Each damaged world under names of its own, and every world undamaged beside them."""
    stores = []
    cases = [(f"d{index:03d}/", one.rows()) for index, one in enumerate(some)]
    cases += [(f"clean-{name}/", rows_of(name)) for name in NAMES]
    for prefix, rows in cases:
        nodes: dict[str, list] = {}
        for row in renamed(rows, prefix):
            nodes.setdefault(row.node, []).append(row)
        for node, every in nodes.items():
            path = folder / "books" / node.replace("/", "-")
            stores.append(make_export(path, node, every, per_file=2_000))
    lake = Lake(folder / "lake")
    jobs.run(spark, lake, stores, ended=True)
    return lake


def told(findings: list[tuple[str, str, str]]) -> dict[str, Counter]:
    found: dict[str, Counter] = {}
    for node, predicate, kind in findings:
        found.setdefault(case(node), Counter())[predicate, kind] += 1
    return found


def tell_each_and_nothing_else(spark, lake: Lake, some: list[Damage]) -> None:
    expected = {f"d{index:03d}": Counter(one.told) for index, one in enumerate(some)}
    found = judge_lake(spark, lake, ended=True)
    every = (*found.violations, *found.quarantined)
    assert told([(one.node or "", one.predicate, one.kind) for one in every]) == expected
    assert not found.clean
    assert found.extents["in_doubt"] > 0
    assert found.rules
    rows = lake.read(spark, lake.current(), VIOLATIONS, "violations").collect()
    assert told([(one["node"] or "", one["predicate"], one["kind"]) for one in rows]) == expected
    judged = lake.read(spark, lake.current(), JUDGED, "judged").collect()
    assert {one["clock"] for one in judged} == {"the books are closed"}


def test_a_sample_of_damages_is_told_and_nothing_else_is(spark, tmp_path: Path) -> None:
    """One world of every third kind of damage, and some kinds in every world."""
    kinds: dict[object, Damage] = {one.do: one for one in DAMAGES}
    some = [*list(kinds.values())[::3], *DAMAGES[::16]]
    tell_each_and_nothing_else(spark, damaged(spark, tmp_path, some), some)


@pytest.mark.soak
def test_every_damage_is_told_and_nothing_else_is(spark, tmp_path: Path) -> None:
    tell_each_and_nothing_else(spark, damaged(spark, tmp_path, DAMAGES), DAMAGES)
