"""Problems as RFC 9457 tells them: a stable type, a status, what is wrong, and what to do next."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from oncewire import errors
from oncewire.errors import OncewireError

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:oncewire:problem:"

_STATUS: tuple[tuple[type[OncewireError], int], ...] = (
    (errors.InvalidValue, 422),
    (errors.AgreementProblem, 422),
    (errors.EbxmlError, 422),
    (errors.NotHere, 404),
    (errors.UnknownMessage, 404),
    (errors.NotAllowed, 409),
    (errors.StoreFull, 507),
    (errors.StoreDamaged, 500),
    (errors.StoreProblem, 503),
    (errors.HandlerFailed, 503),
    (errors.TransportProblem, 503),
)


class Refused(Exception):
    """A request that HTTP itself refuses, before or instead of a verb."""

    def __init__(
        self,
        status: int,
        word: str,
        detail: str,
        remedy: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.word, self.detail, self.remedy = status, word, detail, remedy
        self.headers = headers


class Problem(NamedTuple):
    """What is wrong, however it is told."""

    status: int
    word: str
    detail: str
    remedy: str
    headers: Mapping[str, str]


def problem_in(error: Exception) -> Problem:
    """What an error says to who asked."""
    if isinstance(error, Refused):
        return Problem(error.status, error.word, error.detail, error.remedy, error.headers or {})
    if isinstance(error, OncewireError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        return Problem(status, _word(type(error).__name__), error.problem, error.remedy or "", {})
    detail = f"a fault of the admin port itself ({type(error).__name__})"
    return Problem(500, "fault", detail, "look into the log of `oncewire serve`", {})


def problem_of(error: Exception) -> Response:
    """The answer that tells an error."""
    problem = problem_in(error)
    said = {
        "type": TYPE + problem.word,
        "title": problem.word.replace("-", " ").capitalize(),
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.remedy:
        said["next"] = problem.remedy
    # What follows on the connection may be the rest of what was refused.
    ending = {"Connection": "close", **problem.headers}
    # JSON escapes what UTF-8 has no bytes for.
    return Response(json.dumps(said), problem.status, headers=ending, media_type=MEDIA_TYPE)


def _word(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "pattern": f"^{TYPE}"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong."},
        "next": {"type": "string", "description": "What to do next."},
    },
}
