"""Every route, called with what its description allows and with what it forbids."""

import contextlib

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from oncewire.entry.control.verb import Permission
from tests.entry.admin.conftest import Rest

pytestmark = [pytest.mark.process, pytest.mark.long]

EXAMPLES = 10
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ENDLESS = {"/events"}
"""It answers for as long as one listens."""


def test_no_call_ends_in_a_fault(rest: Rest) -> None:
    headers = {"Authorization": f"Bearer {rest.token('fuzz', Permission)}"}
    page = httpx.get(f"{rest.url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(page)
    schema.config.update(base_url=rest.url)
    called = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:
            if operation.path in ENDLESS:
                continue

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def call(case: schemathesis.Case) -> None:
                for place in (case.query, case.body):
                    # Nobody waits for what never comes.
                    if isinstance(place, dict) and isinstance(place.get("timeout"), int | float):
                        place["timeout"] = 0
                response = case.call(headers=headers)
                case.validate_response(response, checks=CHECKS)

            with contextlib.suppress(Unsatisfiable):  # Where nothing can be said wrongly.
                call()
            called.add(operation.path)
    assert called == set(page["paths"]) - ENDLESS
