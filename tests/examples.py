"""How many examples a property is shown: all that it asks for, or a share of them.

`make quick` sets TEST_EXAMPLES to a percentage. The properties stay the same, and `make test`
shows them everything.
"""

import os


def examples(count: int) -> int:
    """So many in a whole run, and never less than a few."""
    return max(5, count * int(os.environ.get("TEST_EXAMPLES", "100")) // 100)
