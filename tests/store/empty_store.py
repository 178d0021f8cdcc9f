"""An empty store, made by every migration once in a run and copied wherever a test wants one.

A store that is opened for the first time goes through all versions there ever were, with a commit
for each. That is shown in `test_migrate.py`; elsewhere it takes longer than most tests.
"""

from __future__ import annotations

import threading
from functools import cache

import apsw

from oncewire.store.sqlite.connection import Migration, known_migrations, migrate

_lock = threading.Lock()


@cache
def _pattern() -> apsw.Connection:
    made = apsw.Connection(":memory:")
    migrate(made, known_migrations())
    return made


def migrate_or_copy(connection: apsw.Connection, migrations: tuple[Migration, ...]) -> int:
    """As `migrate`; but where nothing is, and all that we know is wanted, the copy comes there."""
    fresh = (
        connection.pragma("application_id") == 0
        and not connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").get
    )
    if not fresh or migrations is not known_migrations():
        return migrate(connection, migrations)
    # Handlers open their stores in threads of their own.
    with _lock, connection.backup("main", _pattern(), "main") as copying:
        copying.step()
    return len(migrations)
