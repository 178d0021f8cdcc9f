"""Trials: messages between handlers that try an agreement out and are nobody's business.

They have a service of their own, and a MessageId that says the same, so that whoever counts need
look no further. One without the other is refused, and so is a trial in parts, or a document whose
SplitId is such an id: no business hides behind a trial's name.
"""

from __future__ import annotations

from oncewire.message.ids import Service

TRIAL_SERVICE = Service("urn:oncewire:trial")
TRIAL_ACTION = "Trial"
TRIAL_MARK = "oncewire-trial-"
"""How the MessageId of a trial begins."""


def is_trial(message_id: str) -> bool:
    """Whether a message of that id is a trial."""
    return message_id.startswith(TRIAL_MARK)


def is_named_rightly(message_id: str, service: Service | None) -> bool:
    """Whether id and service agree on what a message is."""
    return is_trial(message_id) is (service == TRIAL_SERVICE)
