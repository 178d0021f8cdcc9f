"""Fault: what a received SOAP Fault says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultDetail:
    """One error inside a Fault's detail, as NHS Spine writes them."""

    code: str
    severity: str = ""
    description: str = ""
    code_context: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A received Fault: `code` is one of the four of SOAP 1.1 §4.4.1, without prefix."""

    code: str
    string: str
    actor: str | None = None
    details: tuple[FaultDetail, ...] = ()
