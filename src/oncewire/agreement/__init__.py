"""What was agreed: TOML, profiles and CPPA XML to one `Agreement`, and what follows from it.

Pure: text and bytes go in, values come out; reading files is the caller's job.
"""

from oncewire.agreement.agreement import (
    Agreement,
    Direction,
    Endpoint,
    EndpointType,
    Origin,
    Requested,
    address_of,
)
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.check.checks import check, check_all, check_cpa, check_toml
from oncewire.agreement.check.finding import Finding, Severity
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.cppa.reader import party_ids, read_cpa, read_views
from oncewire.agreement.keys import rows
from oncewire.agreement.resolve import Resolution, outbound, resolve
from oncewire.agreement.toml.reader import read_toml
from oncewire.agreement.toml.writer import new, write_toml, write_whole

__all__ = [
    "PROFILES",
    "Agreement",
    "Agreements",
    "Direction",
    "Endpoint",
    "EndpointType",
    "Finding",
    "Origin",
    "Requested",
    "Resolution",
    "Severity",
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
