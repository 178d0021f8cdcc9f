"""The pages of the console: what each shows, and the actions of its buttons.

A page asks with the same verbs and in the same words as a program over REST does, in the roles of
its session; nothing here reads the store. What changes anything is a form with the word of the
session in it, and the name of the session goes along as `by`.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

from msgspec import structs
from starlette.responses import RedirectResponse, Response, StreamingResponse

from oncewire import __version__
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.resolve import leads_to
from oncewire.entry.console import rendering, searching
from oncewire.entry.console.actions import (
    ACTIONS,
    Once,
    Outcomes,
    Shown,
    Trials,
    check_signed,
    fields_of,
    upload_of,
)
from oncewire.entry.console.rendering import MEDIA_TYPES, POLICY, STATIC, Pulse, day, link, render
from oncewire.entry.console.sign_in import Session, SignIns
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import TABLE
from oncewire.entry.doctor.checkup import check_restored
from oncewire.entry.messages.listing import ListedMessage
from oncewire.errors import (
    HandlerFailed,
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
    StoreProblem,
    TransportProblem,
)
from oncewire.handler.world import RealWorld
from oncewire.message.instant import Instant, parse_instant

if TYPE_CHECKING:
    from starlette.requests import Request

    from oncewire.entry.party.settings import Settings
    from oncewire.journal.row import Row
    from oncewire.message.envelope import Payload

LIVE_EVERY = 5.0
"""Seconds after which a page looks again even if nothing was added to the journal."""

PREVIEW = 64 * 1024
"""Bytes of a document that a page shows."""

NAMED = 3
"""Failed messages that the sentence above a list names."""

DOWN = (TransportProblem, HandlerFailed, StoreProblem)
"""Errors that mean that the handler does not answer."""

PARTNERS_COUNTED = 50
"""Partners whose messages of a day are counted on one page."""

_FILE = re.compile(r"[^A-Za-z0-9._-]+")
_FORMULA = re.compile(r"(\A|[;\t\r\n][\s\"']*)(?=[=+\-@＝＋－＠])")
_FAMILIES = {
    "ebMS 2.0": ("ebms2", "cpa"),
    "Drafts of 2000 and 2001": ("ms-", "window", "rm-", "fujitsu-"),
    "Digikoppeling": ("digikoppeling-",),
    "NHS Spine": ("nhs-",),
    "Norwegian health": ("norway-",),
    "PHINMS": ("phinms",),
}
"""How the names of the profiles of each community begin."""
_TAKEN = {
    "invitation": "It is a partner now. Send it the acceptance, which it waits for.",
    "acceptance": "It is a partner now, on both sides. Test what works.",
    "card": "Its new certificate is believed beside the one it had.",
}
"""What came of a partner's file, by its kind."""


class Offers(Protocol):
    """What the admin port offers, to programs over REST and to pages alike."""

    async def ask(self, verb: str, session: Session, **given: Any) -> Any:
        """Run a verb for a session, with its roles and under its name."""

    async def journal(self, after: int, limit: int) -> list[Row]:
        """A range of the journal."""

    def positions(self, who: str, every: float, may: Callable[[], bool]) -> AsyncIterator[int]:
        """The newest position of the journal, again and again."""

    async def ledger(self, part: str | None = None) -> Any:
        """The summary of the lake."""

    async def content(self, message_id: str, number: str, sender: str | None) -> Payload:
        """A document of a message."""

    async def download(self, request: Request, found: Payload) -> Response:
        """A document as a file."""

    async def evidence(self, message_id: str) -> bytes:
        """What proves that a message was received, as a zip."""

    async def agreement(self, partner: str) -> dict[str, Any]:
        """The agreement with a partner: its values, dangers and certificates."""

    async def doctor(self) -> list[dict[str, Any]]:
        """The findings of `oncewire doctor`."""

    async def log(self, limit: int) -> list[str]:
        """The last lines of the log."""


class Meets(Protocol):
    """How partners meet, for programs over REST and for pages alike; `by` is who asks."""

    async def invite(self, given: dict[str, Any], by: str) -> tuple[str, str]:
        """Make an invitation: the name of its file, and its text."""

    async def consider(self, data: bytes, *, insecure: bool, replace: bool) -> dict[str, Any]:
        """What a partner's file would change."""

    async def accept(
        self, data: bytes, digest: str, by: str, *, insecure: bool, replace: bool
    ) -> dict[str, Any]:
        """Write what the file with that digest says."""

    async def card(self) -> tuple[str, str]:
        """Our card: the name of its file, and its text."""

    async def keys(self) -> dict[str, Any]:
        """Our certificate, and the next one if it is made."""

    async def next_key(self, by: str) -> dict[str, Any]:
        """Make the key that follows ours."""

    async def switch_key(self, fingerprint: str, by: str) -> dict[str, Any]:
        """Use the next key from now on."""


@dataclass(frozen=True, slots=True)
class Page:
    """One route of the console."""

    method: str
    path: str
    permission: Permission | None
    answer: Callable[[Request, Session | None], Awaitable[Response]]


TAKE, OPERATE = Permission.TAKE, Permission.OPERATE
F = TypeVar("F", bound=Callable[..., Any])
_PAGES: list[tuple[str, str, Permission | None, Callable[..., Awaitable[Response]]]] = []


def _page_at(
    path: str, role: Permission | None = Permission.LOOK, *, method: str = "GET"
) -> Callable[[F], F]:
    """A page of the console, for sessions with a role; None: for all, signed in or not."""

    def add(answer: F) -> F:
        _PAGES.append((method, path, role, answer))
        return answer

    return add


class Console:
    """The pages of one party."""

    def __init__(self, settings: Settings, offers: Offers, meets: Meets) -> None:
        self._settings, self._offers, self._meets = settings, offers, meets
        said = settings.console
        path = settings.path(said.sign_ins)
        self._sign_ins = SignIns(path, said.link_for, said.session_for)
        self._pulse = Pulse(offers.journal)
        self._outcomes, self._trials, self._shown = Outcomes(), Trials(), Shown()
        self._once = Once()
        # Browsers give a cookie to every port of a host.
        self._cookie = f"oncewire-{settings.admin.port}"
        self.routes = tuple(
            Page(method, path, role, partial(answer, self)) for method, path, role, answer in _PAGES
        )

    # --- who is there ----------------------------------------------------------------------------

    def session(self, request: Request) -> Session | None:
        """The session of a browser."""
        secret = request.cookies.get(self._cookie, "")
        return self._sign_ins.session(secret, _now()) if secret else None

    @_page_at("/console/sign-in", None)
    async def _sign_in_page(self, request: Request, session: Session | None) -> Response:
        """The page of a sign-in link; its script puts the part after the # into the form."""
        return self._page(request, session, "sign_in.html", {"problem": ""})

    @_page_at("/console/sign-in", None, method="POST")
    async def _sign_in(self, request: Request, _session: Session | None) -> Response:
        """Sign in by a link."""
        given = dict(await fields_of(request))
        used = self._sign_ins.use_link(given.get("link", ""), _now())
        if used is None:
            problem = "The link was used already, is too old, or is none."
            return self._page(request, None, "sign_in.html", {"problem": problem}, 403)
        secret, granted = used
        response = RedirectResponse("/console/", 303)
        response.set_cookie(
            self._cookie,
            secret,
            max_age=max(0, granted.until - _now()) // 1_000_000,
            path="/console",
            secure=self._settings.admin.certificate is not None,
            httponly=True,
            samesite="strict",
        )
        return response

    @_page_at("/console/sign-out", method="POST")
    async def _sign_out(self, request: Request, who: Session) -> Response:
        """End the session."""
        check_signed(who, dict(await fields_of(request)))
        self._sign_ins.end(who, _now())
        response = RedirectResponse("/console/sign-in", 303)
        response.delete_cookie(self._cookie, path="/console")
        return response

    # --- pages -----------------------------------------------------------------------------------

    def _page(
        self,
        request: Request,
        session: Session | None,
        template: str,
        values: Mapping[str, Any],
        status: int = 200,
    ) -> Response:
        done = ""
        # What was just done is told once, and not to a page that only looks again.
        if session is not None and "hx-request" not in request.headers:
            done = self._outcomes.take(session.hash, request.query_params.get("said", ""))
        facts = {
            "party": self._settings.party.name,
            "session": session,
            "version": __version__,
            "now": _now(),
            "page": template.removesuffix(".html"),
            "done": done,
            "operates": session is not None and session.may(Permission.OPERATE),
            "takes": session is not None and session.may(Permission.TAKE),
            "chaos": self._settings.console.chaos is not None,
            **values,
        }
        # Without a referrer at all a browser says that a form is from nowhere (`Origin: null`).
        headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
        return Response(render(template, facts), status, headers, "text/html")

    def problem(self, request: Request, status: int, detail: str, remedy: str) -> Response:
        """A page with a problem; without a session it leads to the sign-in."""
        if status == 401:
            if "hx-request" in request.headers:
                return Response("", 401, {"HX-Redirect": "/console/sign-in"})
            return RedirectResponse("/console/sign-in", 303)
        session = None
        # The file of the sessions may be what is wrong.
        with suppress(OncewireError):
            session = self.session(request)
        values = {"status": status, "detail": detail, "remedy": remedy}
        return self._page(request, session, "problem.html", values, status)

    @_page_at("/console/static/{name:path}", None)
    async def _static(self, request: Request, _session: Session | None) -> Response:
        path = STATIC.get(request.path_params["name"])
        if path is None:
            raise NotHere("there is no such file")
        kept = {"Cache-Control": "max-age=3600"}
        return Response(path.read_bytes(), 200, kept, MEDIA_TYPES[path.suffix])

    @_page_at("/console")
    async def _home(self, _request: Request, _who: Session) -> Response:
        return RedirectResponse("/console/", 303)

    @_page_at("/console/live")
    async def _live(self, _request: Request, who: Session) -> Response:
        """Server-sent events that make pages refresh themselves."""
        positions = self._offers.positions(
            who.hash, LIVE_EVERY, lambda: self._sign_ins.lasts(who, _now())
        )
        # From here on it is counted.
        first = await anext(positions)

        async def told() -> AsyncIterator[bytes]:
            yield f"event: changed\ndata: {first}\n\n".encode()
            async for position in positions:
                yield f"event: changed\ndata: {position}\n\n".encode()
            yield b"event: ended\ndata: 0\n\n"

        return StreamingResponse(told(), media_type="text/event-stream")

    @_page_at("/console/")
    async def _now(self, request: Request, who: Session) -> Response:
        values: dict[str, Any] = {"seen": None, "troubles": [], "down": "", "totals": {}}
        values["restored"] = list(check_restored(self._settings))
        try:
            seen = await self._offers.ask("overview", who)
            troubles = await self._offers.ask("incidents", who)
            await self._pulse.read(seen.journal)
            values |= {"seen": seen, "troubles": troubles}
        except DOWN as error:
            values["down"] = f"{error.problem}. {error.remedy or ''}"
        values["totals"] = self._pulse.totals(_now())
        return self._page(request, who, "now.html", values)

    @_page_at("/console/pulse.json")
    async def _lines(self, _request: Request, who: Session) -> Response:
        with suppress(*DOWN):
            seen = await self._offers.ask("overview", who)
            await self._pulse.read(seen.journal)
        return Response(json.dumps(self._pulse.lines(_now())), media_type="application/json")

    async def _find(
        self, request: Request, who: Session, *, tally: bool = False
    ) -> tuple[searching.Wanted, Any, str]:
        """The parsed query, its page of messages, and the problem where it is not understood."""
        partners: set[str] = set()
        if request.query_params.get("q"):
            try:
                seen = await self._offers.ask("overview", who)
                partners = {partner.name for partner in seen.partners}
            except DOWN:
                pass
        wanted = searching.wanted(request.query_params, partners, TABLE["find"])
        try:
            given = wanted.given | ({"tally": True} if tally else {})
            return wanted, await self._offers.ask(wanted.verb, who, **given), ""
        except (InvalidValue, NotHere) as error:
            return wanted, None, _in_words(error)

    @_page_at("/console/messages")
    async def _messages(self, request: Request, who: Session) -> Response:
        counts = "slow" not in request.query_params and "after" not in request.query_params
        wanted, found, problem = await self._find(request, who, tally=counts)
        messages = () if found is None else found.messages
        query, said = wanted.query, ""
        if counts and found is not None and "slow" not in wanted.flags:
            today = date.fromisoformat(day(_now()))
            said = searching.summed_up(wanted, found.tally, today, whole=found.whole)
        return self._page(
            request,
            who,
            "messages.html",
            {
                "wanted": wanted,
                "said": said,
                "totals": {} if found is None else found.tally,
                "troubled": await self._troubled(wanted, found, who),
                "asked": dict(request.query_params),
                "messages": messages,
                "problem": problem,
                "more": link("messages", **query, after=found.after)
                if found is not None and found.after
                else "",
                "exports": {
                    kind: link(f"messages.{kind}", **query, after=wanted.after)
                    for kind in ("csv", "json")
                },
                "states": searching.STATES,
            },
            422 if problem else 200,
        )

    async def _export(self, request: Request, who: Session) -> list[dict[str, Any]]:
        """The messages that the page of the same query shows."""
        _, found, problem = await self._find(request, who)
        if found is None:
            raise InvalidValue(problem)
        return [structs.asdict(each) for each in found.messages]

    @_page_at("/console/messages.csv")
    async def _csv(self, request: Request, who: Session) -> Response:
        rows = await self._export(request, who)
        text = io.StringIO()
        writer = csv.DictWriter(text, ListedMessage.__struct_fields__, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        return _attached(text.getvalue().encode("utf-8", "backslashreplace"), "messages.csv")

    @_page_at("/console/messages.json")
    async def _json(self, request: Request, who: Session) -> Response:
        rows = await self._export(request, who)
        return _attached(json.dumps(rows).encode(), "messages.json")

    async def _troubled(
        self, wanted: searching.Wanted, found: Any, who: Session
    ) -> tuple[ListedMessage, ...]:
        """The first few failed messages of a query that is limited in time."""
        if found is None or "since" not in wanted.filters or "state" in wanted.filters:
            return ()
        there = {name.partition(".")[2] for name in found.tally}
        bad = sorted(there & searching.TROUBLED)
        if not bad:
            return ()
        given = {**wanted.filters, "state": ",".join(bad), "limit": NAMED}
        page = await self._offers.ask(wanted.verb, who, **given)
        messages: tuple[ListedMessage, ...] = page.messages
        return messages

    @_page_at("/console/message")
    async def _message(self, request: Request, who: Session) -> Response:
        message_id = request.query_params.get("id", "")
        direction = request.query_params.get("direction", "")
        meant = {"message_id": message_id} | ({"direction": direction} if direction else {})
        story = await self._offers.ask("why", who, **meant)
        details = await self._offers.ask("show", who, **meant)
        admin = self._settings.admin
        scheme = "http" if admin.certificate is None else "https"
        return self._page(
            request,
            who,
            "message.html",
            {
                "story": story,
                "direction": direction,
                "details": details,
                "facts": details.facts,
                "ladder": rendering.draw(story),
                "tone_of": rendering.tone_of,
                "preview": await self._preview(request, who, message_id),
                "url": f"{scheme}://{admin.names[0] if admin.names else admin.host}:{admin.port}",
                "quoted": shell_quote(message_id),
                "encoded": quote(message_id, safe=""),
            },
        )

    async def _preview(self, request: Request, who: Session, message_id: str) -> dict[str, Any]:
        """The beginning of the document that is asked for, as text that cannot run."""
        number = request.query_params.get("document", "")
        if not number or not who.may(Permission.TAKE):
            return {}
        try:
            found = await self._offers.content(message_id, number, None)
            with found.open() as file:
                data = await asyncio.to_thread(file.read, PREVIEW)
        except OncewireError as error:
            return {"number": number, "problem": _in_words(error), "text": ""}
        text = data.decode("utf-8", "replace")
        return {"number": number, "problem": "", "text": text, "whole": found.size <= PREVIEW}

    @_page_at("/console/document", TAKE)
    async def _document(self, request: Request, _who: Session) -> Response:
        asked = request.query_params
        found = await self._offers.content(asked.get("id", ""), asked.get("number", ""), None)
        return await self._offers.download(request, found)

    @_page_at("/console/evidence", TAKE)
    async def _evidence(self, request: Request, _who: Session) -> Response:
        message_id = request.query_params.get("id", "")
        name = f"evidence-{_FILE.sub('_', message_id)[:80]}.zip"
        return _attached(await self._offers.evidence(message_id), name)

    @_page_at("/console/channels")
    async def _channels(self, request: Request, who: Session) -> Response:
        found = await self._offers.ask("channels", who)
        return self._page(request, who, "channels.html", {"channels": found})

    @_page_at("/console/partners")
    async def _partners(self, request: Request, who: Session) -> Response:
        seen = await self._offers.ask("overview", who)
        today = day(_now())
        chosen = searching.day_of(request.query_params.get("day", "")) or today
        counted: dict[str, dict[str, int]] = {}
        asked = {"since": chosen, "until": searching.next_day(chosen), "limit": 1, "tally": True}
        # A page that only looks again shows the partners anew, and not their numbers.
        again = "hx-request" in request.headers
        for partner in () if again else seen.partners[:PARTNERS_COUNTED]:
            with suppress(OncewireError):
                page = await self._offers.ask("outbox", who, partner=partner.name, **asked)
                counted[partner.name] = searching.in_groups(page.tally)
        values = {"seen": seen, "profiles": _grouped(), "keys": None, "counted": counted}
        values |= {"chosen": chosen, "until": searching.next_day(chosen)}
        # A party may have no key at all, or one that others keep.
        with suppress(InvalidValue, NotHere, NotAllowed):
            values["keys"] = await self._meets.keys()
        return self._page(request, who, "partners.html", values)

    @_page_at("/console/partner")
    async def _partner(self, request: Request, who: Session) -> Response:
        name = request.query_params.get("name", "")
        seen = await self._offers.ask("overview", who)
        known = next((each for each in seen.partners if each.name == name), None)
        agreed = await self._offers.agreement(name)
        stands = []
        if known is not None:
            stands = [
                each.reason or f"{name} asked for a pause"
                for each in await self._offers.ask("channels", who)
                if each.suspended or each.paused_until > _now()
                if leads_to(each.key, known.party_id)
            ]
        values = {"partner": known, "name": name, "agreed": agreed, "trial": self._trials.of(name)}
        values["stands"] = list(dict.fromkeys(stands))
        digest = request.query_params.get("acceptance", "")
        values["acceptance"] = digest if self._shown.has(who.hash, digest) else ""
        return self._page(request, who, "partner.html", values)

    @_page_at("/console/ledger")
    async def _ledger(self, request: Request, who: Session) -> Response:
        values: dict[str, Any] = {"summary": None, "findings": [], "problem": "", "since": None}
        path = self._settings.lake.path
        values["lake"] = lake = (
            "LAKE" if path is None else shell_quote(str(self._settings.path(path)))
        )
        store = shell_quote(str(self._settings.folder))
        values["command"] = f"oncewire pipeline run --store {store} --lake {lake}"
        try:
            values["summary"] = summary = await self._offers.ledger()
            values["findings"] = await self._offers.ledger("findings")
            values["written"] = None
            with suppress(InvalidValue):
                values["written"] = parse_instant(str(summary.get("written_at")))[0]
            read = summary.get("nodes", {}).get(self._settings.party.name, {}).get("seq")
            with suppress(*DOWN):
                seen = await self._offers.ask("overview", who)
                # A journal that ends before what was read is another one, or was restored.
                if isinstance(read, int) and seen.journal >= read:
                    values["since"] = seen.journal - read
        except NotHere as error:
            values["problem"] = _in_words(error)
        return self._page(request, who, "ledger.html", values)

    @_page_at("/console/health")
    async def _health(self, request: Request, who: Session) -> Response:
        values: dict[str, Any] = {"reasons": [], "seen": None, "findings": None, "lines": []}
        values |= {"doubts": [], "no_log": "", "metrics": ""}
        try:
            said = await self._offers.ask("readiness", who)
            values |= {"reasons": said.reasons, "doubts": said.doubts}
            values["seen"] = await self._offers.ask("overview", who)
        except DOWN as error:
            values["reasons"] = [error.problem]
        if request.query_params.get("doctor"):
            values["findings"] = await self._offers.doctor()
        if request.query_params.get("metrics"):
            values["metrics"] = await self._offers.ask("figures", who)
        try:
            values["lines"] = await self._offers.log(200)
        except NotHere as error:
            values["no_log"] = _in_words(error)
        return self._page(request, who, "health.html", values)

    # --- how partners meet -----------------------------------------------------------------------

    @_page_at("/console/invite", OPERATE, method="POST")
    async def _invite(self, request: Request, who: Session) -> Response:
        """An invitation, as a file."""
        given = dict(await fields_of(request))
        check_signed(who, given)
        asked: dict[str, Any] = {name: given.get(name, "") for name in ("profile", "cpa_id")}
        asked |= {name: name in given for name in ("ordered", "insecure", "sign")}
        making = partial(self._meets.invite, asked, who.name)
        (name, text), _ = await self._once.do(who.hash, given.get("once", ""), making)
        return _attached(text.encode(), name)

    @_page_at("/console/accept", OPERATE, method="POST")
    async def _consider(self, request: Request, who: Session) -> Response:
        """What a partner's file would change: it is written when the person says so."""
        given, data = await upload_of(request)
        check_signed(who, given)
        flags = {name: name in given for name in ("insecure", "replace")}
        told = await self._meets.consider(data, **flags)
        self._shown.keep(who.hash, told["digest"], "", data)
        return self._page(request, who, "accept.html", {"told": told, "flags": flags})

    @_page_at("/console/accepted", OPERATE, method="POST")
    async def _accept(self, request: Request, who: Session) -> Response:
        """Write what the file says that was shown to this session under its digest."""
        given = dict(await fields_of(request))
        check_signed(who, given)
        digest = given.get("digest", "")
        if "compared" not in given:
            raise NotAllowed(
                "the fingerprint was not compared", remedy="ask the partner by telephone, first"
            )

        async def taken() -> dict[str, Any]:
            _, data = self._shown.of(who.hash, digest)
            told = await self._meets.accept(
                data, digest, who.name, insecure="insecure" in given, replace="replace" in given
            )
            if told["acceptance"]:
                self._shown.keep(who.hash, digest, told["file_name"], told["acceptance"].encode())
            return told

        told, _ = await self._once.do(who.hash, given.get("once", ""), taken)
        word, reply = self._outcomes.keep(who.hash, _TAKEN[told["kind"]]), told["acceptance"]
        place = link("partner", name=told["partner"], said=word, acceptance=reply and digest)
        return RedirectResponse(place, 303)

    @_page_at("/console/acceptance", OPERATE)
    async def _acceptance(self, request: Request, who: Session) -> Response:
        """The acceptance that was made of an invitation, as a file."""
        name, data = self._shown.of(who.hash, request.query_params.get("digest", ""))
        if not name:
            raise NotHere("this invitation was not accepted yet")
        return _attached(data, name)

    @_page_at("/console/card", OPERATE)
    async def _card(self, _request: Request, _who: Session) -> Response:
        name, text = await self._meets.card()
        return _attached(text.encode(), name)

    # --- what is done ----------------------------------------------------------------------------

    @_page_at("/console/do", OPERATE, method="POST")
    async def _do(self, request: Request, who: Session) -> Response:
        """Run an action, then go back to the page of its button."""
        fields = await fields_of(request)
        given = dict(fields)
        check_signed(who, given)
        word = given.get("do", "")
        place = given.get("back", "").partition("#")[0]
        place = place if place.startswith("/console/") else "/console/"
        doing = partial(self._done, word, fields, who)
        done, again = await self._once.do(who.hash, given.get("once", ""), doing)
        done = f"This form was sent before, and acted once: {done}" if again else done
        said = self._outcomes.keep(who.hash, done)
        return RedirectResponse(f"{place}{'&' if '?' in place else '?'}said={said}", 303)

    async def _done(self, word: str, fields: list[tuple[str, str]], who: Session) -> str:
        """Run the action of a button; returns a sentence about its result."""
        given = dict(fields)
        if word == "test":
            name = given.get("partner", "")
            # Who is no partner is told so at once, not by what becomes of the test.
            await self._offers.agreement(name)
            trying = self._offers.ask("try_partner", who, partner=name)
            new = self._trials.begin(name, trying, _now)
            return "The test began." if new else "A test is under way already."
        if word == "next-key":
            await self._meets.next_key(who.name)
            return "The next key is made. Partners do not know it yet: give each of them our card."
        if word == "switch-key":
            if "sure" not in given:
                raise NotAllowed(
                    "it was not said that every partner has the card with the next key",
                    remedy="a partner without it refuses what we sign from then on: ask each one",
                )
            await self._meets.switch_key(given.get("fingerprint", ""), who.name)
            return "The next key is ours now."
        chaos = self._settings.console.chaos
        if word == "chaos" and chaos is not None:
            await asyncio.to_thread(self._settings.path(chaos).touch)
            return "The demo breaks something: a cut network, a kill -9, or a storm."
        if word not in ACTIONS:
            raise InvalidValue(f"{word[:32]!r} cannot be done here")
        action = ACTIONS[word]
        # Several messages may be meant, as the list of those that failed shows them.
        ids = [value for name, value in fields if name == "message_id"] or [""]
        result: Any = None
        refused: list[OncewireError] = []
        for message_id in ids:
            given["message_id"] = message_id
            arguments = {name: given[name] for name in action.asks if given.get(name)}
            try:
                result = await self._offers.ask(action.verb, who, **arguments, **action.fixed)
            except OncewireError as error:
                refused.append(error)
        if refused:
            done, first = len(ids) - len(refused), refused[0]
            said = f"done for {done}, refused for {len(refused)}; the first: " if done else ""
            raise NotAllowed(said + first.problem, remedy=first.remedy or "")
        several = f"Done for {len(ids)} messages. " if len(ids) > 1 else ""
        return several + (action.not_done if result is False else action.done)


def _in_words(error: OncewireError) -> str:
    return f"{error.problem}; {error.remedy}"


def _grouped() -> dict[str, dict[str, str]]:
    """The profiles and what they say, by the community that has them."""
    left, found = dict(PROFILES), dict[str, dict[str, str]]()
    for family, beginnings in _FAMILIES.items():
        names = [name for name in left if name.startswith(beginnings)]
        found[family] = {name: left.pop(name).says for name in names}
    return found | ({"Others": {name: each.says for name, each in left.items()}} if left else {})


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula, also one that splits cells at semicolons."""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", f"'{value}" if value[:1] in ("\t", "\r") else value)


def _attached(data: bytes, name: str) -> Response:
    said = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, 200, said, "application/octet-stream")


def _now() -> Instant:
    return RealWorld().now()
