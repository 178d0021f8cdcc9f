"""How tests are shared out among workers (`pytest -n 2`): what belongs together, what comes first.

The tests of a file stay together, so that what a module prepares is prepared once. Tests that use
Spark's session are two groups: starting Spark and warming it up takes longer than most of them, and
all of them in one worker would take longer than everything else in the others. The groups named
here take longest and begin first; the small files fill up the rest, so that no core waits for
another one at the end.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = ("spark", "spark beside it")

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        SPARK[0],
        (
            "tests/pipeline/test_bad_input.py",
            "tests/pipeline/test_columns.py",
            "tests/pipeline/test_damage.py",
            "tests/pipeline/test_ledger.py",
            "tests/pipeline/test_planted.py",
            "tests/pipeline/test_reconcile.py",
            "tests/pipeline/test_retention.py",
            "tests/pipeline/test_stream.py",
            "tests/pipeline/test_summary.py",
            "tests/entry/demo/test_demo.py",
            "tests/entry/demo/test_demo_books.py",
            "tests/test_parts.py",
        ),
    ),
    (
        SPARK[1],
        (
            "tests/pipeline/test_admin_port.py",
            "tests/pipeline/test_advise.py",
            "tests/pipeline/test_archived.py",
            "tests/pipeline/test_bucket.py",
            "tests/pipeline/test_documents.py",
            "tests/pipeline/test_documents_kept.py",
            "tests/pipeline/test_evidence.py",
            "tests/pipeline/test_intake.py",
            "tests/pipeline/test_kept.py",
            "tests/pipeline/test_names.py",
            "tests/pipeline/test_on_postgresql.py",
            "tests/pipeline/test_oncewire_source.py",
            "tests/pipeline/test_readers.py",
            "tests/pipeline/test_sink.py",
            "tests/pipeline/test_standalone.py",
            "tests/pipeline/test_stores.py",
            "tests/pipeline/test_submit.py",
        ),
    ),
    ("mutants", ("tests/mutants/",)),
    ("a cluster", ("tests/pipeline/test_cluster.py",)),
    ("kill -9", ("tests/handler/processes/",)),
    ("simulation", ("tests/simulation/test_simulation.py",)),
    # They look at the same syntax trees.
    (
        "the house",
        (
            "tests/test_house.py",
            "tests/test_citations.py",
            "tests/test_docstrings.py",
            "tests/test_unused.py",
            "tests/journal/test_notes.py",
        ),
    ),
)
"""A group's name, and how the paths of its tests begin. In the order in which they are begun."""


def group_of(nodeid: str) -> str:
    """The group of a test: tests of one group run one after the other in one worker."""
    path = nodeid.split("::", 1)[0]
    for name, beginnings in GROUPS:
        if path.startswith(beginnings):
            return name
    return path


def arrange(items: list[pytest.Item]) -> None:
    """Put the groups that are named first; within a group everything keeps its order."""
    ranks = {name: rank for rank, (name, _) in enumerate(GROUPS)}
    items.sort(key=lambda item: ranks.get(group_of(item.nodeid), len(ranks)))


def in_spark_group(nodeid: str) -> bool:
    """Whether a test is where a session of Spark is; elsewhere it would start another one."""
    return group_of(nodeid) in SPARK


class Scheduler(LoadScopeScheduling):
    """Hands out whole groups, in the order in which the tests were arranged."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
