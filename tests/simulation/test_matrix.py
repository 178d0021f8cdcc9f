"""Every cell of the matrix keeps every promise, or is forbidden by a rule that the page names."""

from __future__ import annotations

import pytest

from tests.parts import ROOT
from tests.simulation.matrix import CELLS, DIALECTS, MODES, ORDERS, POSSIBLE, Cell, page

COLUMNS = sorted({(cell.mode, cell.dialect) for cell in POSSIBLE})


def test_every_combination_is_there_and_the_page_tells_which_can_be() -> None:
    assert len(CELLS) == len(set(CELLS)) == len(MODES) * len(DIALECTS) * 3 * 4
    assert (ROOT / "docs" / "internals" / "matrix.md").read_text(encoding="utf-8") == page()


@pytest.mark.requirement("SYNC-2", "HOP-1")
@pytest.mark.parametrize(("mode", "dialect"), COLUMNS)
def test_no_promise_is_broken(mode: str, dialect: str) -> None:
    for cell in POSSIBLE:
        if (cell.mode, cell.dialect) == (mode, dialect):
            result = cell.run()
            assert not result.violations, (str(cell), result.violations)
            if _must_arrive(cell):
                assert result.delivered == ORDERS, str(cell)


def _must_arrive(cell: Cell) -> bool:
    """Nothing is repeated where no acknowledgement may be asked for."""
    return cell.mode != "responseOnly" or cell.fault == "no fault"
