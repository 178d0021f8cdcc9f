"""The matrix: each synchronous mode in each dialect, over each number of hubs, with each fault.

A cell is a small simulated world with one fault. A run without the fault finds the transfer that
the fault is to hit. A cell that no rule allows names the rule that forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from oncewire.lab.simulation.connection import HTTP, Arrive, Turned
from oncewire.lab.simulation.papers import is_sound, papers_of
from oncewire.lab.simulation.plan import (
    BUYER,
    SELLER,
    Event,
    Fall,
    Harm,
    Mishap,
    Order,
    Plan,
    Reply,
    Setting,
)
from oncewire.lab.simulation.world import Result, World
from oncewire.message.instant import SECOND

DIALECTS = ("rm-0.78", "ms-0.9x", "ebms2")
MODES = ("none", "mshSignalsOnly", "signalsOnly", "responseOnly", "signalsAndResponse")
WAYS = {"direct": 0, "one hub": 1, "two hubs": 2}
FAULTS = ("no fault", "acknowledgement lost", "response lost", "hub killed")
ORDERS = 2

# Only what is said here is special to the matrix; the rest is the dialect's own profile.
_SAID = (
    ("delivery.timeout", "PT5S"),
    ("delivery.retry_interval", "PT5S"),
    ("delivery.retries", 4),
    ("delivery.persist_duration", "PT10M"),
    ("sync.retries", "same_message"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    mode: str
    dialect: str
    way: str
    fault: str

    def __str__(self) -> str:
        return f"{self.mode}, {self.dialect}, {self.way}, {self.fault}"

    @property
    def setting(self) -> Setting:
        """Who there is and what was agreed."""
        said = tuple(_SAID)
        if self.mode != "none":
            said += (("sync.mode", self.mode), ("sync.timeout", "PT4S"))
        if self.mode == "responseOnly":
            # No acknowledgement may be called for: the response itself is the proof.
            said += _UNACKNOWLEDGED[self.dialect]
        return Setting(
            hubs=WAYS[self.way],
            profile=self.dialect,
            said=(*said, ("hop.mode", "store_and_forward")),
            called=(BUYER, SELLER),
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """From the buyer to the seller."""
        return (BUYER, *self.setting.way, SELLER)

    @property
    def forbidden(self) -> str:
        """The rule that forbids it, and why; empty where nothing does."""
        if self.dialect == "rm-0.78" and self.mode != "none":
            return "SYNC-1: rm-0.78 has no synchronous reply"
        if self.dialect == "ms-0.9x" and self.mode == "signalsOnly":
            return "SYNC-3, SYNC-4, SYNC-5: the drafts have no mode signalsOnly"
        if self.fault == "hub killed" and not WAYS[self.way]:
            return "HOP-1: a direct way has no hub"
        if self.mode == "responseOnly" and self.fault == "acknowledgement lost":
            return "SYNC-4: with responseOnly there is no acknowledgement"
        return ""

    def plan(self, events: tuple[Event, ...] = ()) -> Plan:
        """The world, with these faults."""
        orders = tuple(
            Order(number, BUYER, SELLER, (1 + 2 * number) * SECOND, reply=Reply.WITH)
            for number in range(ORDERS)
        )
        return Plan(7, self.setting, orders, events)

    def run(self) -> Result:
        """Run it with its fault, which must have happened."""
        assert all(
            is_sound(paper) for node in self.nodes for paper in papers_of(self.setting, node)
        )
        if self.fault == "no fault":
            return World(self.plan()).run()
        event = self._fault()
        found = World(self.plan((event,))).run()
        hit = "lose" if isinstance(event, Mishap) else "crash"
        assert found.happened[hit] > 0, (str(self), found.happened)
        return found

    def _fault(self) -> Event:
        if self.fault == "hub killed":
            # Between having an order and having sent it on.
            return Fall(self.setting.way[0], 2, True, 8 * SECOND)
        back = self._carried_back()
        if self.fault == "response lost":
            wanted = [place for place, body in back if b"reply to order" in body]
        else:
            wanted = [place for place, body in back if b"cknowledg" in body]
        assert wanted, str(self)
        return Mishap(*wanted[0], Harm.LOSE)

    def _carried_back(self) -> list[tuple[tuple[str, str, int], bytes]]:
        """What goes back toward the buyer on each hop, where nothing goes wrong."""
        world = World(self.plan())
        links, carry, found = world.links, world.links.carry, []
        order = {name: place for place, name in enumerate(self.nodes)}
        counted: dict[tuple[str, str], int] = {}

        def noting(
            sender: str,
            receiver: str,
            body: bytes,
            arrive: Arrive,
            turned: Turned | None = None,
            *,
            transport: str = HTTP,
        ) -> None:
            nth = counted[sender, receiver] = counted.get((sender, receiver), 0) + 1
            if order[sender] > order[receiver]:
                found.append(((sender, receiver, nth), body))
            carry(sender, receiver, body, arrive, turned, transport=transport)

        links.carry = noting  # type: ignore[method-assign]
        world.run()
        return found


_UNACKNOWLEDGED = {
    "ms-0.9x": (("delivery.reliable", False), ("ack.request", "never")),
    "ebms2": (("ack.request", "never"),),
}

CELLS = tuple(
    Cell(mode, dialect, way, fault)
    for mode, dialect, way, fault in product(MODES, DIALECTS, WAYS, FAULTS)
)
POSSIBLE = tuple(cell for cell in CELLS if not cell.forbidden)


def page() -> str:
    """What docs/internals/matrix.md says."""
    forbidden: dict[str, list[Cell]] = {}
    for cell in CELLS:
        forbidden.setdefault(cell.forbidden, []).append(cell)
    possible = forbidden.pop("")
    lines = [
        "# The matrix: synchronous modes, dialects, hubs and faults",
        "",
        "The simulator runs every possible combination of four choices and checks that no",
        f"promise is broken. There are {len(CELLS)} combinations of",
        "",
        f"- a synchronous mode: {', '.join(MODES)};",
        f"- a dialect: {', '.join(DIALECTS)};",
        f"- a way from sender to receiver: {', '.join(WAYS)};",
        f"- a fault: {', '.join(FAULTS)}.",
        "",
        f"{len(possible)} of them are possible. `tests/simulation/test_matrix.py` runs each of",
        "these in the simulator, which loses exactly the acknowledgement or response, or kills",
        "exactly the hub, that the fault names. A requirement rules out each of the others:",
        "",
        "| requirement | why | combinations |",
        "|---|---|---|",
    ]
    for rule, cells in forbidden.items():
        ids, _, why = rule.partition(": ")
        lines.append(f"| {ids} | {why} | {len(cells)}: {_together(cells)} |")
    lines += [
        "",
        "`tests/handler/processes/test_matrix.py` runs a selection of them between real",
        "processes. In the selection every pair of values occurs at least twice, or once if only",
        "one combination has the pair. `make soak` runs the whole selection, `make test` a few.",
    ]
    return "\n".join(lines) + "\n"


def _together(cells: list[Cell]) -> str:
    """What the cells of a rule have in common."""
    said = []
    for name, every in (
        ("mode", MODES),
        ("dialect", DIALECTS),
        ("way", tuple(WAYS)),
        ("fault", FAULTS),
    ):
        found = [value for value in every if any(getattr(cell, name) == value for cell in cells)]
        if len(found) < len(every):
            said.append(f"{name} {' or '.join(found)}")
    return "; ".join(said)
