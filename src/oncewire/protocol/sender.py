"""The sender: what happens to one outgoing message, from submission to its outcome.

Each function is one event. It takes the message, its channel (None where the stream is
neither numbered nor limited), the terms and `now`, and returns a `SenderStep` step: the new
state and the effects to perform once that state is saved.
"""

from oncewire.protocol.answers import ack_arrived, error_arrived, warning_arrived
from oncewire.protocol.attempts import (
    Way,
    attempt_due,
    deadline_passed,
    enter_window,
    transmission_ended,
    transmission_failed,
)
from oncewire.protocol.operating import abandon, resume
from oncewire.protocol.settling import SenderStep

__all__ = [
    "SenderStep",
    "Way",
    "abandon",
    "ack_arrived",
    "attempt_due",
    "deadline_passed",
    "enter_window",
    "error_arrived",
    "resume",
    "transmission_ended",
    "transmission_failed",
    "warning_arrived",
]
