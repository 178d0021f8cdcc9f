"""Synchronous replies: what comes back on the connection that brought the request.

The wish stands in the header, never in the transport (SYNC-9). It is refused where the
agreement does not provide for it, ignored with a warning where the transport cannot
answer, and honoured by every intermediary whatever the end parties agreed (SYNC-11).
"""

from __future__ import annotations

from msgspec import Struct

from oncewire.errors import Inconsistent
from oncewire.message.envelope import Error, Message, Severity
from oncewire.message.form import SyncReplyMode
from oncewire.message.instant import Duration
from oncewire.protocol.terms import AckBundling, SyncBundle, SyncRetries, Terms

TIMEOUT_MESSAGE = "communication protocol time-out"
"""The words SYNC-17 asks for in the error of a connection that ran out of time."""

_WITH_RESPONSE = (SyncReplyMode.RESPONSE_ONLY, SyncReplyMode.SIGNALS_AND_RESPONSE)


class SyncPlan(Struct, frozen=True, gc=False):
    """What this connection carries back."""

    mode: SyncReplyMode = SyncReplyMode.NONE
    # Put into the response: the wish was ignored because the transport cannot answer.
    warning: Error | None = None

    @property
    def signals(self) -> bool:
        """Whether acknowledgements and errors come back on the connection (SYNC-6, SYNC-12)."""
        return self.mode is not SyncReplyMode.NONE

    @property
    def response(self) -> bool:
        """Whether the business response comes back on the connection."""
        return self.mode in _WITH_RESPONSE


ASYNCHRONOUS = SyncPlan()


def plan_reply(
    message: Message,
    terms: Terms,
    *,
    can_answer: bool,
    final: bool,
    ack_owed: bool,
    unasked: bool = False,
    replies_may_ask: bool = False,
) -> SyncPlan:
    """How to reply to this message, or the error that refuses its wish.

    `can_answer`: the transport can carry a reply on the same connection (TRN-5);
    `final`: this handler acts for the To Party; `unasked`: the agreement speaks where the
    header is silent (CPA-8); `replies_may_ask`: not only what opens a conversation.
    """
    silent = not message.header.asks_sync_reply
    mode = terms.sync_mode if silent and unasked else _wished(message, terms)
    if mode is SyncReplyMode.NONE:
        return ASYNCHRONOUS
    if not final:
        return SyncPlan(mode) if can_answer else ASYNCHRONOUS
    _check_wish(message, mode, terms, ack_owed=ack_owed, replies_may_ask=replies_may_ask)
    if not can_answer:
        return SyncPlan(SyncReplyMode.NONE, warning=_ignored())
    return SyncPlan(mode)


def _check_wish(
    message: Message, mode: SyncReplyMode, terms: Terms, *, ack_owed: bool, replies_may_ask: bool
) -> None:
    """Refuse a wish that the To Party's handler cannot grant under these terms."""
    if message.header.ref_to_message_id is not None and not replies_may_ask:
        raise Inconsistent(
            "only the message that opens a conversation may ask for a synchronous reply",
            location="//SyncReply",
        )
    if not terms.synchronous:
        raise Inconsistent(
            "a synchronous reply is asked for, the agreement has none", location="//SyncReply"
        )
    hop = message.last_hop
    if hop is not None and hop.error_uri is not None:
        raise Inconsistent(
            "an ErrorURI is invalid in a synchronous exchange", location="//ErrorURI"
        )
    if mode is SyncReplyMode.RESPONSE_ONLY and ack_owed and not _rides_on_response(terms):
        raise Inconsistent(
            "a response alone is asked for, but an acknowledgement is due", location="//SyncReply"
        )


def _wished(message: Message, terms: Terms) -> SyncReplyMode:
    """The header's own mode, or the agreement's where the header says "as agreed"."""
    if message.header.sync_reply is not None:
        return message.header.sync_reply
    if message.header.sync_reply_as_agreed:
        # Asking for "as agreed" where nothing is agreed must be refused, not ignored.
        return terms.sync_mode if terms.synchronous else SyncReplyMode.MSH_SIGNALS_ONLY
    return SyncReplyMode.NONE


def _rides_on_response(terms: Terms) -> bool:
    """ebMS 2.0 bundles the acknowledgement into a response; the sync paper forbids both."""
    return (
        terms.ack_bundling is not AckBundling.STANDALONE
        and terms.sync_retries is SyncRetries.SAME_MESSAGE
    )


def holds_connection(plan: SyncPlan, terms: Terms, *, ack_owed: bool, called: bool) -> bool:
    """Whether the connection waits for what the application answers.

    It waits for an application that is `called`. One that comes for its messages may come at
    any time, so it is waited for only where no acknowledgement may go before the response
    (`piggyback`). Where the two may share neither a header nor a body, the acknowledgement
    alone is the reply, and there is nothing to wait for.
    """
    apart = terms.ack_bundling is AckBundling.STANDALONE and not concatenates(terms)
    if not plan.response or (ack_owed and apart):
        return False
    return called or terms.ack_bundling is AckBundling.PIGGYBACK


def concatenates(terms: Terms) -> bool:
    """Whether acknowledgement and response come back as two messages in one body (SYNC-8)."""
    return terms.sync_bundle is SyncBundle.CONCATENATED


def ignored_wish(message: Message, terms: Terms) -> Error | None:
    """The warning that goes on the response to a request whose wish was ignored (SYNC-10).

    `terms`: those the request was stored under. Without any synchronous reply in them a wish
    was ignored for the transport's sake; for any other reason it would have been refused.
    """
    asked = _wished(message, terms) is not SyncReplyMode.NONE
    return _ignored() if asked and not terms.synchronous else None


def _ignored() -> Error:
    return Error(
        "NotSupported",
        Severity.WARNING,
        "//SyncReply",
        "this transport cannot reply synchronously; the reply comes on its own",
    )


def timeout_error() -> Error:
    """The error a node returns whose connection ran out before a reply was there (SYNC-17).

    A warning: the request left and may well have been delivered (ERR-9), and its sender
    must not be told otherwise.
    """
    return Error("DeliveryFailure", Severity.WARNING, "", TIMEOUT_MESSAGE)


def unreachable_error(reason: str) -> Error:
    """What a hub says when the next handler could not be reached.

    A warning too: of another copy that the network made, this one says nothing.
    """
    words = f"the next handler was not reached: {reason}"
    return Error("DeliveryFailure", Severity.WARNING, "", words[:300])


def late_warning() -> Error:
    """What an acknowledgement says beside itself when the response is not there in time.

    Not a DeliveryFailure: the request is stored, and its response follows on its own.
    """
    return Error("Unknown", Severity.WARNING, "", f"{TIMEOUT_MESSAGE}: the response comes later")


def awaits_response(terms: Terms) -> bool:
    """Whether the connection of a stored request waits for the business response to it."""
    return terms.sync_mode in _WITH_RESPONSE


def patience(terms: Terms) -> Duration:
    """How long the connection waits for the application. The initiator waits `sync_timeout`
    in all, so the last fifth of it is for the reply that says that there was none."""
    return terms.sync_timeout - terms.sync_timeout // 5


def onward_patience(outer: Terms, inner: Terms) -> Duration:
    """How long a hub waits for its own exchange with the next handler, whatever was agreed for
    that hop: the one behind it waits longer, so that it hears how this one ended (gap 11)."""
    return min(inner.sync_timeout, patience(outer))


def relay_patience(outer: Terms) -> Duration:
    """How long a hub keeps a request's connection: its own exchange has ended before that."""
    return outer.sync_timeout - outer.sync_timeout // 10


def answerable_after_restart(terms: Terms) -> bool:
    """Whether a request whose connection died may still be delivered and answered.

    Without retries the initiator has given up and would never learn of the delivery: the
    request is closed as not answered instead (SYNC-18).
    """
    return terms.sync_retries is SyncRetries.SAME_MESSAGE
