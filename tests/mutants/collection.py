"""All mutants: those that a simulated world shows, and those that named tests must notice."""

from __future__ import annotations

from tests.mutants.catalogue import MUTANTS
from tests.mutants.in_agreement import IN_AGREEMENT
from tests.mutants.in_documents import IN_DOCUMENTS
from tests.mutants.in_edge_alive import IN_EDGE_ALIVE
from tests.mutants.in_edge_identity import IN_EDGE_IDENTITY
from tests.mutants.in_edge_stream import IN_EDGE_STREAM
from tests.mutants.in_fine_print import IN_FINE_PRINT
from tests.mutants.in_hand_over import IN_HAND_OVER
from tests.mutants.in_handler import IN_HANDLER
from tests.mutants.in_hubs import IN_HUBS
from tests.mutants.in_numbers import IN_NUMBERS
from tests.mutants.in_predicates import IN_PREDICATES
from tests.mutants.in_recovery import IN_RECOVERY
from tests.mutants.in_store import IN_STORE
from tests.mutants.in_streams import IN_STREAMS
from tests.mutants.in_sync import IN_SYNC
from tests.mutants.in_templates import IN_TEMPLATES
from tests.mutants.in_time import IN_TIME
from tests.mutants.in_transports import IN_TRANSPORTS
from tests.mutants.in_wire import IN_WIRE
from tests.mutants.mutant import Mutant

ALL: tuple[Mutant, ...] = (
    *MUTANTS,
    *IN_WIRE,
    *IN_NUMBERS,
    *IN_RECOVERY,
    *IN_STORE,
    *IN_STREAMS,
    *IN_AGREEMENT,
    *IN_HANDLER,
    *IN_TIME,
    *IN_SYNC,
    *IN_HAND_OVER,
    *IN_HUBS,
    *IN_EDGE_IDENTITY,
    *IN_PREDICATES,
    *IN_EDGE_STREAM,
    *IN_EDGE_ALIVE,
    *IN_FINE_PRINT,
    *IN_TEMPLATES,
    *IN_TRANSPORTS,
    *IN_DOCUMENTS,
)
