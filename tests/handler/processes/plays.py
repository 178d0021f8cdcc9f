"""Plays: who is on stage, under which agreement, over which network."""

from __future__ import annotations

from tests.handler.network import agreement_text
from tests.handler.processes.party import Settings
from tests.handler.processes.proxy import GOOD, Luck
from tests.handler.processes.stage import Stage
from tests.ports import free_port

FAST = (
    '[delivery]\ntimeout = "PT0.3S"\nretry_interval = "PT0.3S"\nretries = 2000\n'
    '[sync]\ntimeout = "PT5S"\n'
)
"""Timers for tests; so many retries that bad luck never exhausts them."""

MODES = {
    # In order through a window, acknowledgements on connections of their own.
    "window": ("window", FAST + '[flow]\nmode = "window"\nwindow = 32\n'),
    # The same, each order a document in parts.
    "parts": (
        "window",
        FAST + '[flow]\nmode = "window"\nwindow = 32\n[payload]\nmax_size = 1000\n',
    ),
    # In any order, acknowledgements on connections of their own.
    "asynchronous": ("ebms2", FAST),
    # In any order, acknowledgements on the connection of the message.
    "synchronous": ("ebms2", FAST + 'mode = "mshSignalsOnly"\n'),
    # In any order, the response on the connection of its order, the acknowledgement in it.
    "responding": ("ebms2", FAST + 'mode = "signalsAndResponse"\n'),
}


def two_parties(
    stage: Stage,
    mode: str,
    orders: int,
    *,
    luck: Luck | None = GOOD,
    extra: str = "",
    called: bool = False,
    both_ways: bool = False,
    **more: object,
) -> Stage:
    """alpha sends orders to beta, or each to the other; `luck` None: no proxy between them."""
    profile, terms = MODES[mode]
    ports = {"alpha": free_port(), "beta": free_port()}
    for own, partner in (("alpha", "beta"), ("beta", "alpha")):
        listen = ports[own] if luck is None else stage.put_proxy(own, ports[own], luck)
        stage.parties[own] = Settings(
            own,
            str(stage.folder),
            listen,
            [agreement_text(own, partner, profile, extra or terms, ports)],
            cpa_id="alpha-beta",
            orders=orders if own == "alpha" or both_ways else 0,
            called=called or mode == "responding",
            responds=mode == "responding",
            **more,  # type: ignore[arg-type]
        )
    return stage


def three_parties(
    stage: Stage, orders: int, *, luck: Luck | None = None, extra: str = "", size: int = 40
) -> Stage:
    """alpha sends orders to beta by way of a hub that stores and forwards."""
    ports = {name: free_port() for name in ("alpha", "hub", "beta")}
    for own in ports:
        listen = ports[own] if luck is None else stage.put_proxy(own, ports[own], luck)
        stage.parties[own] = Settings(
            own,
            str(stage.folder),
            listen,
            [text + extra for text in _agreements(own, ports)],
            cpa_id="alpha-beta",
            orders=orders if own == "alpha" else 0,
            size=size,
        )
    return stage


def _agreements(own: str, ports: dict[str, int]) -> list[str]:
    if own == "hub":
        return [
            _hop_agreement(own, "alpha", "alpha-hub", ports, first="forwards = true\n"),
            _hop_agreement(own, "beta", "hub-beta", ports, first="forwards = true\n"),
        ]
    partner = "beta" if own == "alpha" else "alpha"
    return [_hop_agreement(own, partner, "alpha-beta", ports, last="[via]\n" + _side("hub", ports))]


def _hop_agreement(
    own: str, partner: str, cpa_id: str, ports: dict[str, int], *, first: str = "", last: str = ""
) -> str:
    terms = FAST + '[flow]\nmode = "window"\nwindow = 8\n[hop]\nmode = "store_and_forward"\n'
    return (
        f'cpa_id = "{cpa_id}"\nprofile = "window"\n{first}'
        f"[own]\n{_side(own, ports)}[partner]\n{_side(partner, ports)}{last}{terms}"
    )


def _side(name: str, ports: dict[str, int]) -> str:
    uri = f"http://127.0.0.1:{ports[name]}/msh"
    return f'party_id = "urn:test:{name}"\nuri = "{uri}"\nhttp = "{uri}"\n'
