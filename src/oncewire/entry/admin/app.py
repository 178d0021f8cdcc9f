"""The ASGI application of the admin port: it checks the caller first, then the route answers.

Every route states the role that it needs. Those of verbs are made from the table of verbs; the
others are here beside them, in one list.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match

from oncewire.entry.admin import feed, form, reports, routes
from oncewire.entry.admin.requests import (
    Refused,
    documents,
    json_body,
    parameters,
    problem_in,
    problem_of,
    read_file,
    send_query,
    stretch_of,
    whole,
)
from oncewire.entry.admin.routes import (
    MEETING,
    NOBODY,
    TEXT,
    Meeting,
    Served,
    Table,
    answered,
    check_role,
    hosts_of,
    netloc,
    operation,
    query,
    query_of,
    route_of,
)
from oncewire.entry.admin.tokens import Token, TokenFile
from oncewire.entry.console.pages import Console, Page
from oncewire.entry.console.sign_in import Session
from oncewire.entry.control.client import Remote, tell_running
from oncewire.entry.control.language import line_of
from oncewire.entry.control.values import checked
from oncewire.entry.control.verb import Permission
from oncewire.entry.messages.stored import contents_of, evidence_for, nth_content, open_at
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import AgreementFolder
from oncewire.entry.party.store import find_replaced, open_readers, socket_path, store_path
from oncewire.entry.watching.snapshot import Readiness
from oncewire.errors import (
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
    StoreProblem,
    TransportProblem,
)
from oncewire.handler.world import RealWorld
from oncewire.journal.identity import START
from oncewire.journal.row import JOURNAL_VERSION, Row
from oncewire.message.envelope import Payload
from oncewire.message.file_name import disposition
from oncewire.pipeline.lake.summary import read_summary

if TYPE_CHECKING:
    from inspect import BoundArguments

    from starlette.types import Receive, Scope, Send

    from oncewire.entry.admin.form import VerbForm
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader

logger = logging.getLogger("oncewire.admin")
access = logging.getLogger("oncewire.access")

T = TypeVar("T")

LISTENERS, LISTENERS_EACH = 32, 12
"""Server-sent events that are under way at once, of all and of one session or token."""

QUERY_MAX = 8 * 1024
"""Bytes of a path and its query."""

REFUSALS = 60
"""Refused calls without a token in a minute from one address; further ones get a 429 and are not
logged."""

ANSWERS_WITHIN = 5.0
"""Seconds within which a running handler must answer a question about its state."""

READERS = 4
"""Requests that read the store at the same time. Others queue, so that partners do not wait."""

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.-]+=[\w.\"-]+)*", re.ASCII)
_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


LOOK, TAKE = Permission.LOOK, Permission.TAKE
HEALTH = ("/readyz", "/metrics")
"""Routes that need no token under `admin.open_health`."""

AFTER = query("after", "Rows behind this seq.", "int", minimum=0)

ROUTES = Table()
"""The routes that are no verb's."""


class AdminApp:
    """The ASGI application of one party."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tokens = TokenFile(settings.path(settings.admin.tokens))
        self._agreements = AgreementFolder(settings)
        path = socket_path(settings)
        # Those that wait for something must not take the places of those that do not.
        self._verbs, self._waiting = Remote(path), Remote(path)
        self._readers = open_readers(settings)
        self._reading = asyncio.Semaphore(READERS)
        self._examining = asyncio.Semaphore(1)
        self._feed = feed.Feed(self._reader)
        self._strangers = Strangers()
        self._hosts, self._port = hosts_of(settings), f":{settings.admin.port}"
        self._meeting = Meeting(settings, lambda: _soon(tell_running(settings)))
        verbs = [
            Served(
                asked.method, asked.path, asked.verb.permission, partial(self._perform, asked),
                routes.verb_operation(asked),
            )
            for asked in form.VERB_FORMS
        ]  # fmt: skip
        own = ROUTES.of(self)
        if settings.admin.open_health:
            own = tuple(
                replace(each, permission=None) if each.path in HEALTH else each for each in own
            )
        self.routes = (*verbs, *own, *MEETING.of(self._meeting))
        self._page = line_of(
            routes.page(
                (each.path, each.method, each.permission, each.operation) for each in self.routes
            )
        )
        self._console = Console(settings, self, self._meeting)
        pages = map(_served, self._console.routes)
        self._router = [(route_of(each), each) for each in (*self.routes, *pages)]

    # --- the way in ------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        request, began = Request(scope, receive), monotonic()
        caller, served = NOBODY, None
        try:
            served = self._judge(request)
            caller = self._caller(request, served)
            check_role(caller, served.permission)
            response = await served.answer(request, caller)
            # Wrong links, which a page tells.
            wrong = caller is NOBODY and response.status_code == 403
            if wrong and self._strangers.too_many(_address(request)):
                response = self._told(_WAIT, request, served)
        except ClientDisconnect:
            return
        except TimeoutError:
            response = self._told(_SLOW, request, served)
        except (Refused, OncewireError) as error:
            flood = caller is NOBODY and self._strangers.too_many(_address(request))
            response = self._told(_WAIT if flood else error, request, served)
        except Exception as error:
            logger.exception("a request to the admin port failed")
            response = self._told(error, request, served)
        for name, value in _SAFE.items():
            response.headers.setdefault(name, value)
        self._log(request, caller, response.status_code, monotonic() - began)
        await response(scope, receive, send)

    def _told(self, error: Exception, request: Request, served: Served | None) -> Response:
        """The answer to a request that failed: a problem for programs, a page for people."""
        if served is None or not served.page:
            return problem_of(error)
        told = problem_in(error)
        return self._console.problem(request, told.status, told.detail, told.remedy)

    def _judge(self, request: Request) -> Served:
        """The route of a request; Refused where its framing, host, origin or method is wrong."""
        scope = request.scope
        if len(scope["raw_path"]) + len(scope["query_string"]) > QUERY_MAX:
            raise Refused(414, "too-long", f"path and query have more than {QUERY_MAX} bytes")
        framed = [
            name for name in ("content-length", "transfer-encoding") if name in request.headers
        ]
        bare = request.method in ("GET", "HEAD") and request.headers.get("content-length") != "0"
        if len(framed) > 1 or (framed and bare):
            # What follows could be taken for another request, or read to no end.
            raise Refused(400, "framing", "a body is not read here, or has two lengths")
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            # A name of a stranger's that leads to this address (DNS rebinding).
            raise Refused(
                421, "host", "this host name is not served here", "set admin.names in oncewire.toml"
            )
        origins = request.headers.getlist("origin")
        # Without a number a host is the port of the scheme, where others may listen, unless this
        # request came by that name: through a proxy, or because it is our port.
        ours = {hosts[0].lower(), *(each for each in self._hosts if each.endswith(self._port))}
        foreign = any(netloc(each) not in ours for each in origins)
        if foreign or request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
            raise Refused(403, "origin", "a page of another origin may not call this")
        allowed = set()
        for route, served in self._router:
            match, child = route.matches(scope)
            if match is Match.FULL:
                scope.update(child)
                return served
            if match is Match.PARTIAL:
                allowed.add(served.method)
        if allowed:
            methods = ", ".join(sorted(allowed))
            raise Refused(405, "method", f"this is a {methods}", headers={"Allow": methods})
        if scope["path"] == "/" and "text/html" in request.headers.get("accept", ""):
            home = {"Location": "/console/"}
            raise Refused(303, "console", "its pages are at /console/", headers=home)
        raise Refused(404, "no-route", "there is no such route", "/openapi.json lists them")

    def _caller(self, request: Request, served: Served) -> Token:
        """The token of a request, or one with the roles of its session."""
        if served.page:
            session = request.state.session = self._console.session(request)
            if served.permission is None:
                return NOBODY
            if session is None:
                raise Refused(401, "sign-in", "the session is over, or there is none")
            return _token(session)
        if served.permission is None:
            return NOBODY
        said = request.headers.getlist("authorization")
        word, _, secret = said[0].partition(" ") if len(said) == 1 else ("", "", "")
        found = self._tokens.find(secret.strip()) if word.lower() == "bearer" else None
        if found is None:
            raise Refused(
                401,
                "sign-in",
                "the token is missing, or not known here",
                "send `Authorization: Bearer TOKEN`; `oncewire token add` makes one",
                {"WWW-Authenticate": 'Bearer realm="oncewire"'},
            )
        return found

    def _log(self, request: Request, caller: Token, status: int, seconds: float) -> None:
        """A line of the access log: never a query, never a token."""
        if status == 429:
            # A client that is told to wait must not fill the log.
            return
        access.info(
            "request",
            extra={
                "by": caller.name,
                "address": _address(request),
                "method": request.method[:16],
                "path": request.url.path[:512],
                "status": status,
                "ms": round(seconds * 1000),
            },
        )

    # --- verbs -----------------------------------------------------------------------------------

    async def _perform(self, asked: VerbForm, request: Request, caller: Token) -> Response:
        """Run a verb in the handler."""
        given = query_of(request, asked) if asked.reads else await json_body(request)
        if not asked.reads and request.query_params:
            raise InvalidValue("arguments are in the query", remedy="give them as a JSON object")
        for name in ("by", *(["message_id"] if asked.about_message else [])):
            if name in given:
                raise InvalidValue(f"{name} is not given here", remedy=f"leave {name} out")
        if asked.about_message:
            given["message_id"] = request.path_params["message_id"]
        doing = self._done(asked, given, caller)
        result = await (_while_there(request, doing) if asked.waits else doing)
        return answered(form.write_result(asked.verb, result))

    def _done(
        self, asked: VerbForm, given: dict[str, Any], caller: Token
    ) -> Coroutine[Any, Any, Any]:
        """Run a verb with checked arguments; `by` is the name of the caller."""
        if asked.signed:
            given["by"] = caller.name
        bound: BoundArguments = checked(asked.verb, asked.verb.bind(given))
        return (self._waiting if asked.waits else self._verbs).perform(asked.verb, bound)

    # --- what the console is made of -------------------------------------------------------------

    async def ask(self, verb: str, session: Session, **given: Any) -> Any:
        """Run a verb for a session, with its roles and under its name."""
        asked = form.BY_NAME[verb]
        caller = _token(session)
        check_role(caller, asked.verb.permission)
        doing = self._done(asked, given, caller)
        return await (doing if asked.waits else _soon(doing))

    async def journal(self, after: int, limit: int) -> list[Row]:
        """A range of the journal, as `/journal` tells it."""
        return [row async for rows in feed.pages(self._reader, after, limit) for row in rows]

    def positions(self, who: str, every: float, may: Callable[[], bool]) -> AsyncIterator[int]:
        """The newest position of the journal, as `/events` follows it."""
        self._check_room(who)
        return self._feed.positions(who, every, may)

    def _check_room(self, who: str) -> None:
        """Refuse a listener beyond the limits."""
        if self._feed.listeners[who] >= LISTENERS_EACH:
            raise _too_many_listen(f"{LISTENERS_EACH} of this session or token")
        if self._feed.listeners.total() >= LISTENERS:
            raise _too_many_listen(f"{LISTENERS} pages and programs")

    @ROUTES.route("POST", form.UPLOADS, Permission.SUBMIT, routes.upload_operation())
    async def _send(self, request: Request, caller: Token) -> Response:
        """Hand documents in. An Idempotency-Key becomes the MessageId, which the store lets be used
        once: a client that repeats a call whose answer was lost gets the answer of the first."""
        given, file_name = send_query(request)
        message_id = self._keyed(request, caller, str(given.get("message_id", "")))
        to, cpa_id = str(given.pop("to", "")), str(given.pop("cpa_id", ""))
        options = SendOptions(**{**given, "message_id": message_id})
        readable = await asyncio.to_thread(self._agreements.readable, to)
        agreement = find_agreement(readable, to, cpa_id)
        folder, limit = store_path(self._settings).parent, self._settings.admin.max_body
        async with documents(request, folder, limit, file_name) as payloads:
            there = self._settings.transports
            submission = submission_of(agreement, payloads, options, there, caller.name)
            try:
                accepted = await self._verbs.submit(submission)
            except InvalidValue as error:
                known = form.IDEMPOTENCY in request.headers and await self._read(
                    lambda reader: reader.outgoing(message_id) is not None
                )
                if known:
                    raise _key_reused(error.problem) from None
                raise
        if accepted.repeated and form.IDEMPOTENCY in request.headers:
            await self._check_names(message_id, [payload.file_name for payload in payloads])
        said = {"message_id": accepted.message_id, "conversation_id": accepted.conversation_id}
        response = answered(said, 201)
        if accepted.repeated:
            response.headers[form.REPLAYED] = "true"
        return response

    def _keyed(self, request: Request, caller: Token, message_id: str) -> str:
        """The MessageId of a submission: the given one, or the one that its key stands for."""
        keys = request.headers.getlist(form.IDEMPOTENCY)
        name = self._settings.party.name
        if not keys:
            if re.fullmatch(rf"[0-9a-f]{{40}}@{re.escape(name)}", message_id):
                # Else one caller could take the id that the key of another one stands for.
                raise InvalidValue(
                    f"a message_id of 40 hexadecimal digits @{name} stands for an "
                    f"{form.IDEMPOTENCY}",
                    remedy="give another message_id, or the key itself",
                )
            return message_id
        if len(keys) > 1 or not keys[0].isprintable() or not 0 < len(keys[0]) <= form.KEY_MAX:
            raise InvalidValue(
                f"the {form.IDEMPOTENCY} cannot be used",
                remedy=f"send one, of up to {form.KEY_MAX} printable characters",
            )
        if message_id:
            raise InvalidValue(
                f"there is a message_id and an {form.IDEMPOTENCY}", remedy="give one of them"
            )
        digest = sha256("\0".join((name, caller.name, keys[0])).encode()).hexdigest()
        return f"{digest[:40]}@{name}"

    async def _check_names(self, message_id: str, names: list[str]) -> None:
        """Refuse a key whose documents were called otherwise: a name is no part of what makes two
        messages the same."""
        try:
            kept = await self._read(
                lambda reader: [
                    payload.file_name for payload in contents_of(self._settings, reader, message_id)
                ]
            )
        except (NotHere, NotAllowed):
            # Retention removed the documents, or they are kept encrypted.
            return
        if kept != names:
            raise _key_reused("its documents had other file names")

    # --- what is kept ----------------------------------------------------------------------------

    def _reader(self) -> AbstractContextManager[Reader]:
        """A view of the store."""
        return self._readers.reader()

    async def _read(self, question: Callable[[Reader], Any]) -> Any:
        """Ask the store in a thread; at most `READERS` questions run at the same time."""

        def ask() -> Any:
            with self._reader() as reader:
                return question(reader)

        async with self._reading:
            return await asyncio.to_thread(ask)

    @ROUTES.route(
        "GET", form.UPLOADS + "/{message_id}/payloads/{number}", TAKE, routes.payload_operation()
    )
    async def _payload(self, request: Request, _caller: Token) -> Response:
        """A document of a message, or a range of it."""
        number, message_id = request.path_params["number"], request.path_params["message_id"]
        given = parameters(request, {"sender"})
        found = await self.content(message_id, number, given.get("sender"))
        return await self.download(request, found)

    async def content(self, message_id: str, number: str, sender: str | None) -> Payload:
        """A document of a message."""
        if not (number.isascii() and number.isdigit() and len(number) < 6):
            raise InvalidValue(f"the number {number[:32]!r} is none", remedy="the first is 1")
        found: Payload = await self._read(
            lambda reader: nth_content(self._settings, reader, message_id, int(number), sender)
        )
        return found

    async def download(self, request: Request, found: Payload) -> Response:
        """A document, or a range of it, as a file that no browser shows."""
        start, end = stretch_of(request, found.size, found.digest)
        file = await asyncio.to_thread(open_at, found, start)
        kind = found.media_type if _MEDIA_TYPE.fullmatch(found.media_type) else ""
        headers = {
            "ETag": f'"{found.digest}"',
            "Accept-Ranges": "bytes",
            "Content-Length": str(end - start),
            "Content-Disposition": "attachment",
            **dict(disposition(found.file_name) if found.file_name else ()),
        }
        whole = (start, end) == (0, found.size)
        if not whole:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        return StreamingResponse(
            read_file(file, end - start),
            200 if whole else 206,
            headers,
            kind or "application/octet-stream",
        )

    @ROUTES.route(
        "GET", "/journal", LOOK,
        operation(
            "journal", "A range of the journal, a row a line; Arrow where Accept asks.",
            {feed.NDJSON: {}, feed.ARROW: {}},
            AFTER, query("limit", "At most so many.", "int", minimum=1, maximum=feed.RANGE_MAX),
        ),
    )  # fmt: skip
    async def _journal(self, request: Request, _caller: Token) -> Response:
        """A range of the journal."""
        given = parameters(request, {"after", "limit"})
        after, limit = whole(given, "after", 0), whole(given, "limit", feed.RANGE)
        if not 1 <= limit <= feed.RANGE_MAX:
            raise InvalidValue(
                f"limit is {limit}", remedy=f"give 1 to {feed.RANGE_MAX:,}, and go on from there"
            )
        rows = feed.pages(self._reader, after, limit)
        if feed.ARROW not in request.headers.get("accept", ""):
            return StreamingResponse(feed.as_lines(rows), media_type=feed.NDJSON)
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise Refused(
                406, "no-arrow", "pyarrow is not installed here", "ask for NDJSON, or install it"
            ) from None
        return StreamingResponse(feed.as_arrow(rows), media_type=feed.ARROW)

    @ROUTES.route(
        "GET", "/journal/span", LOOK,
        operation(
            "journal_span",
            "Whose journal it is, where it lies, and of the rows from `after` to `through` how "
            "many there are and the head of the chain behind them.",
            routes.JSON,
            AFTER, query("through", "Rows up to this seq.", "int", minimum=0),
        ),
    )  # fmt: skip
    async def _span(self, request: Request, _caller: Token) -> Response:
        """Where the journal lies, for those who read it by ranges."""
        given = parameters(request, {"after", "through"})
        after, through = whole(given, "after", 0), whole(given, "through", 0)
        span = await self._read(lambda reader: reader.journal_span(after, through))
        heads = await self._read(lambda reader: reader.journal_heads(through, 1))
        head = heads.get(through + 1)
        return answered(
            {
                "node": self._settings.party.name,
                "journal_version": JOURNAL_VERSION,
                **span._asdict(),
                # As a lake has it: empty where the chain begins, none where it is not known.
                "head": None if head is None else "" if head == START else head.hex(),
            }
        )

    @ROUTES.route(
        "GET", "/events", LOOK,
        operation(
            "events", "Rows as they are added to the journal (server-sent events).",
            {"text/event-stream": {}}, AFTER,
        ),
    )  # fmt: skip
    async def _events(self, request: Request, caller: Token) -> Response:
        """New rows of the journal as server-sent events."""
        given = parameters(request, {"after"})
        after: int | None = whole(given, "after", 0) if "after" in given else None
        after = next(feed.told_position(request.headers.get("last-event-id", "")), after)
        if after is not None and after > (last := await self._read(lambda read: read.last_seq())):
            raise Refused(
                409,
                "beyond-end",
                f"the journal ends at {last}, before the position {after}: it was restored from a "
                "backup, or it is another one",
                "begin anew: compare what you have with /journal, then ask without Last-Event-ID",
            )
        self._check_room(caller.hash)

        def may() -> bool:
            return any(each == caller for each in self._tokens.tokens())

        events = self._feed.events(caller.hash, after, may)
        # From here on it is counted.
        first = await anext(events)

        async def told() -> AsyncIterator[bytes]:
            yield first
            async for each in events:
                yield each

        return StreamingResponse(told(), media_type="text/event-stream")

    @ROUTES.result("/ledger", "ledger", "What the pipeline found, in figures.")
    @ROUTES.result("/ledger/{part}", "ledger_part", "One part of it, such as findings.", "part")
    async def ledger(self, part: str | None = None) -> Any:
        """The summary of the lake, or a part of it."""
        named = self._settings.lake.path
        if named is None:
            raise NotHere("no lake is named", remedy="set lake.path in oncewire.toml")
        return await asyncio.to_thread(read_summary, self._settings.path(named), part)

    # --- reports ---------------------------------------------------------------------------------

    @ROUTES.route(
        "GET", form.UPLOADS + "/{message_id}/evidence", TAKE,
        operation(
            "evidence",
            "What proves that a message was sent and received, for others to check.",
            {"application/zip": routes.BYTES}, routes.MESSAGE_ID,
        ),
    )  # fmt: skip
    async def _evidence(self, request: Request, _caller: Token) -> Response:
        """What proves that a message was received."""
        parameters(request, set())
        data = await self.evidence(request.path_params["message_id"])
        return Response(data, media_type="application/zip")

    async def evidence(self, message_id: str) -> bytes:
        """What proves that a message was received, as a zip."""
        made = await self._read(lambda reader: evidence_for(self._settings, reader, message_id))
        data: bytes = await asyncio.to_thread(made.as_zip)
        return data

    @ROUTES.result(
        "/agreements/{partner}", "agreement",
        "An agreement: values and origins, dangers, certificates.", "partner",
    )  # fmt: skip
    async def agreement(self, partner: str) -> dict[str, Any]:
        """The agreement with a partner: its values, dangers and certificates."""
        now = RealWorld().now()
        return await asyncio.to_thread(
            reports.agreement, self._settings, self._agreements, partner, now
        )

    @ROUTES.result("/doctor", "doctor", "What the party stands on, looked at now.")
    async def doctor(self) -> list[dict[str, Any]]:
        """The findings of `oncewire doctor`; one run at a time: it reads the whole store."""
        async with self._examining:
            return await asyncio.to_thread(reports.doctor, self._settings, RealWorld().now())

    @ROUTES.route(
        "GET", "/log", LOOK,
        operation(
            "log", "The last lines of the handler's log.", routes.JSON,
            query("limit", "At most so many.", "int", minimum=1),
        ),
    )  # fmt: skip
    async def _log_lines(self, request: Request, _caller: Token) -> Response:
        given = parameters(request, {"limit"})
        return answered(await self.log(whole(given, "limit", 200)))

    async def log(self, limit: int) -> list[str]:
        """The last lines of the log."""
        return await asyncio.to_thread(reports.log, self._settings, limit)

    # --- health ----------------------------------------------------------------------------------

    @ROUTES.route("GET", "/openapi.json", None, operation("openapi", "This page.", routes.JSON))
    async def _openapi(self, _request: Request, _caller: Token) -> Response:
        return Response(self._page, media_type="application/json")

    @ROUTES.route(
        "GET", "/livez", None, operation("livez", "Whether the admin port answers.", TEXT)
    )
    async def _live(self, _request: Request, _caller: Token) -> Response:
        return Response("alive\n", media_type="text/plain")

    @ROUTES.route(
        "GET", "/readyz", LOOK,
        operation("readyz", "Whether the handler can take messages; a doubt a line.", TEXT),
    )  # fmt: skip
    async def _ready(self, _request: Request, _caller: Token) -> Response:
        """Whether the handler can take messages now."""
        try:
            replaced = await asyncio.to_thread(find_replaced, self._settings)
            if replaced is not None:
                raise replaced
            said = await _soon(self._verbs.readiness())
        except (TransportProblem, StoreProblem) as error:
            said = Readiness(False, [error.problem])
        told = [*(said.reasons or ["ready"]), *(f"doubt: {doubt}" for doubt in said.doubts)]
        status = 200 if said.ready else 503
        return Response("".join(f"{line}\n" for line in told), status, media_type="text/plain")

    @ROUTES.route("GET", "/metrics", LOOK, operation("metrics", "Figures for Prometheus.", TEXT))
    async def _metrics(self, _request: Request, _caller: Token) -> Response:
        """The metrics of the handler."""
        return Response(await _soon(self._verbs.figures()), media_type="text/plain")


async def _soon(asking: Awaitable[T]) -> T:
    """The answer of the handler; TransportProblem where it does not come in time."""
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            return await asking
    except TimeoutError:
        raise TransportProblem(
            f"the handler has not answered for {ANSWERS_WITHIN:.0f} seconds",
            remedy="`oncewire doctor` says more",
        ) from None


def _key_reused(why: str) -> Refused:
    return Refused(
        422,
        "key-reused",
        f"the {form.IDEMPOTENCY} was used for another message: {why}",
        "give every message a key of its own, and repeat a call as it was",
    )


_SLOW = Refused(408, "too-slow", "the form came too slowly", "send it again")
_WAIT = Refused(
    429, "too-many", "too many refused calls from this address", "wait", {"Retry-After": "60"}
)


def _too_many_listen(many: str) -> Refused:
    return Refused(429, "listeners", f"{many} listen already", "close some", {"Retry-After": "30"})


def _served(page: Page) -> Served:
    """The route of a page."""

    async def answer(request: Request, _caller: Token) -> Response:
        return await page.answer(request, request.state.session)

    return Served(page.method, page.path, page.permission, answer, {}, page=True)


def _token(session: Session) -> Token:
    """A token with the roles of a session."""
    return Token(session.name, session.roles, session.hash)


class Strangers:
    """Counts refused calls without a token by address, within a minute and within a bound. Who has
    a token is served whatever others do from the same address."""

    ADDRESSES = 10_000

    def __init__(self) -> None:
        self._minute, self._counts = 0, dict[str, int]()

    def too_many(self, address: str) -> bool:
        """Count one refused call; True where the address has had too many."""
        minute = int(monotonic() // 60)
        if minute != self._minute:
            self._minute, self._counts = minute, {}
        if address in self._counts or len(self._counts) < self.ADDRESSES:
            self._counts[address] = self._counts.get(address, 0) + 1
        return self._counts.get(address, REFUSALS + 1) > REFUSALS


def _address(request: Request) -> str:
    """The address of the client."""
    return request.client.host if request.client else ""


async def _while_there(request: Request, doing: Awaitable[Any]) -> Any:
    """The result of a call; ClientDisconnect where the caller hangs up first."""

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, gone = asyncio.ensure_future(doing), asyncio.ensure_future(hang_up())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()
        work.cancel()
