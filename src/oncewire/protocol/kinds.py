"""The kinds of journal rows: everything that can happen to a message, a channel or a node.

The protocol and the handler note what happened, the journal keeps it, and whoever reads it (the
checker, `why`, Spark, an auditor) goes by these kinds; their meaning changes only with the
journal's version. Each kind's comment says which columns it fills beyond `seq, at, mono, boot,
node, kind`. Channel facts are `channel, epoch, sequence_number`: once a message has a number on a
node, every later row of it on that node carries them, so that a channel can be judged from its
own rows. What a kind tells beyond columns is its class in `protocol/notes.py`.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What happened, in the past tense."""

    # --- the node ---
    STARTED = "started"  # boot; detail: version
    STOPPED = "stopped"  # a graceful stop; a crash leaves none
    TERMS = "terms"  # terms_id; detail: the terms in full, once per node and terms_id
    CLOCK_SET = "clock_set"  # somebody set the clock that people read; detail: by, verdict

    # --- the sending side ---
    SUBMITTED = (
        "submitted"  # terms_id, channel?, peer=To, digest, size, ref_to?; detail: header facts
    )
    NUMBERED = "numbered"  # terms_id, channel facts; detail: status
    SENT = "sent"  # attempt begins (committed first): attempt, transport, peer, hop; channel facts
    SEND_FAILED = (
        "send_failed"  # attempt, transport; detail: outcome refused|unknown|discarded, reason
    )
    ACKNOWLEDGED = "acknowledged"  # ref_to=the ack's id; peer; detail: by, late?, signed?, hop?
    REJECTED = "rejected"  # an error answer settled it; ref_to=its id; detail: code, severity
    WARNED = "warned"  # a warning about it came; ref_to=what carried it
    IGNORED = "ignored"  # a signal about it changed nothing: ref_to?=its id, peer?; detail: why
    TRANSIENT = "transient"  # a Transient Error came: channel?; detail: until
    EXHAUSTED = "exhausted"  # the last retry on `transport` went unanswered
    EXPIRED = "expired"  # detail: by=TimeToLive|persistDuration
    FAILED = "failed"  # outcome set; detail: outcome not_delivered|unknown, reason
    NOTIFIED = (
        "notified"  # the From Party took the notice of the failure, ref_to?; detail: severity
    )
    SUSPENDED = "suspended"  # channel?; detail: reason
    RESUMED = "resumed"  # by the operator; retry counters start at zero again
    ABANDONED = "abandoned"  # by the operator or by policy: the number is given up
    EPOCH_ENDED = "epoch_ended"  # channel, epoch: the next number carries Reset

    # --- the receiving side ---
    RECEIVED = "received"  # first copy stored: terms_id, channel facts, peer=From, digest, size
    DUPLICATE = "duplicate"  # a repeat: digest; detail: answer
    REFUSED = "refused"  # not accepted: digest?; detail: code, location, problem
    SKIPPED = "skipped"  # channel, epoch, sequence_number: will not be handed over; detail: reason
    EPOCH_BEGAN = "epoch_began"  # channel, epoch: the sender restarted its numbering
    WARNING_SENT = "warning_sent"  # accepted, and its sender is warned; ref_to=what carries it
    ACK_SENT = "ack_sent"  # released after the commit; ref_to=the ack's id, peer
    HANDED_OVER = (
        "handed_over"  # to the application: terms_id, channel facts, digest; detail: redelivered?
    )
    CONFIRMED = "confirmed"  # by the application
    JOINED = "joined"  # message_id=SplitId, digest and size of the whole document

    # --- an intermediary ---
    FORWARDED = (
        "forwarded"  # the next hop is ours: its terms_id, peer and hop; channel facts it came with
    )
    PASSED_ON = "passed_on"  # sent on, and nothing promised: ref_to?, peer, hop

    # --- operation ---
    INCIDENT = "incident"  # opened; detail: id, what an operator must resolve
    RESOLVED = "resolved"  # detail: id
