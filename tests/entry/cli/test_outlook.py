"""What an operator is told to run about what stands still."""

import pytest

from oncewire.entry.messages.outlook import next_steps
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident


@pytest.mark.parametrize(
    ("channel", "command"),
    [
        ("handler agreement globex.toml", "oncewire agreement check -c acme"),
        ("handler files", "oncewire doctor -c acme"),
        ("handler way globex smtp", "oncewire doctor -c acme"),
        ("alpha-beta|talk", "oncewire resume --channel 'alpha-beta|talk' -c acme"),
    ],
)
def test_what_is_wrong_is_mended_where_it_is_wrong(channel: str, command: str) -> None:
    """To resume what a file says wrong would only silence it."""
    incident = Incident(1, 0, "line 3 is no TOML", channel=channel)
    with MemoryStore("acme").reader() as reader:
        assert next_steps(reader, [incident], 0, " -c acme") == (command,)
