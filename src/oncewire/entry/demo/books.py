"""The demo's books: what Spark finds in both parties' stores, ledger and reconciliation.

The same jobs as `oncewire pipeline run` and `oncewire pipeline reconcile`, over the stores as the
two handlers left them. They know nothing of what the demo itself counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = "lake"
DELIVERED = "delivered"


@dataclass(frozen=True, slots=True)
class Books:
    """What the ledger says of every order, and what the two parties say to each other."""

    # How many messages came to which verdict.
    verdicts: dict[str, int]
    # Findings of the checker, of any kind, as the table `violations` has them.
    violations: int
    # Rows that break the journal's contract and could not be judged.
    quarantined: int
    parties: tuple[str, str]
    compared: int
    disagreements: tuple[dict[str, Any], ...] = ()

    @property
    def agreed(self) -> int:
        """Messages on which both books say the same."""
        return self.compared - len(
            {disagreement["message_id"] for disagreement in self.disagreements}
        )

    def clean(self, messages: int) -> bool:
        """Whether each of so many orders is delivered, and both parties say so of each."""
        return (
            self.verdicts == {DELIVERED: messages}
            and not self.violations
            and not self.quarantined
            and not self.disagreements
            and self.compared == messages
        )


def read_books(
    spark: SparkSession, folder: Path, stores: Sequence[Path], tell: Callable[[str], None]
) -> Books:
    """Take both stores into a lake in the demo's folder, judge it, and join the two books."""
    from oncewire.pipeline import jobs
    from oncewire.pipeline.books import open_book
    from oncewire.pipeline.lake import Lake
    from oncewire.pipeline.reconcile import reconcile

    done = jobs.run(spark, Lake((folder / LAKE).resolve()), stores, ended=True, tell=tell)
    # A hub stands between them.
    ours, theirs = open_book(stores[0]), open_book(stores[-1])
    joined = reconcile(spark, ours, theirs, tell=tell)
    return Books(
        verdicts=done.verdicts,
        violations=done.violations,
        quarantined=done.quarantined,
        parties=joined.parties,
        compared=joined.compared,
        disagreements=joined.disagreements,
    )
