"""What was agreed: TOML, profiles and CPPA XML to one `Agreement`, and what follows from it.

Pure: text and bytes go in, values come out; reading files is the caller's job.
"""

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Business,
    Direction,
    Endpoint,
    EndpointType,
    Origin,
    PartyTerms,
    Protection,
    Requested,
    Rules,
    Value,
    Via,
    address_of,
)
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.check.checks import check, check_all, check_cpa, check_toml
from oncewire.agreement.check.finding import CheckReport, Finding, Severity
from oncewire.agreement.compose import PROFILES, Profile
from oncewire.agreement.cppa.reader import party_ids, read_cpa, read_views
from oncewire.agreement.keys import Row, rows
from oncewire.agreement.resolve import Outbound, Resolution, outbound, resolve
from oncewire.agreement.toml.reader import read_toml
from oncewire.agreement.toml.writer import new, write_toml, write_whole

__all__ = [
    "PROFILES",
    "ActionBinding",
    "Agreement",
    "Agreements",
    "Business",
    "CheckReport",
    "Direction",
    "Endpoint",
    "EndpointType",
    "Finding",
    "Origin",
    "Outbound",
    "PartyTerms",
    "Profile",
    "Protection",
    "Requested",
    "Resolution",
    "Row",
    "Rules",
    "Severity",
    "Value",
    "Via",
    "address_of",
    "check",
    "check_all",
    "check_cpa",
    "check_toml",
    "new",
    "outbound",
    "party_ids",
    "read_cpa",
    "read_toml",
    "read_views",
    "resolve",
    "rows",
    "write_toml",
    "write_whole",
]
