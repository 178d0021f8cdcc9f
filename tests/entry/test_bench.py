"""The benchmarks at their smallest: what they say, never how fast it was."""

import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from oncewire.entry.cli.main import build
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import RECORD, open_store, store_path
from oncewire.lab.bench import growth, peers
from oncewire.lab.bench.exchange import RECEIVER, SENDER, add_agreements, make_pair, open_sides
from oncewire.lab.bench.figures import (
    HISTORY,
    HISTORY_MAX,
    Configuration,
    Figure,
    Outcome,
    PeerFigure,
    save,
)
from oncewire.lab.bench.growth import Delay

SMALL = ("--seconds", "0.05", "--repeats", "1", "--no-peers", "--json")
FIGURE = {"what", "rate", "limit", "ratio", "spread"}
SIDES = {
    "sender_us",
    "receiver_us",
    "sender_peak_mb",
    "receiver_peak_mb",
    "retries",
    "failed_attempts",
}
COUNTS = {"statements", "rows", "fsyncs", "sender_statements"}


def bench(*arguments: str) -> dict[str, Any]:
    found = CliRunner().invoke(build(), ["bench", *arguments, *SMALL])
    assert found.exit_code == 0, found.output
    told: dict[str, Any] = json.loads(found.stdout)
    return told


def check(told: dict[str, Any], name: str) -> None:
    assert told["benchmark"] == name
    assert told["ratio_to_limit"] > 0
    assert told["messages_per_second"] >= 0
    assert told["peers"] == []
    assert told["limit"]
    assert told["machine"].keys() >= {"cores", "load"}
    for figure in told["figures"]:
        assert set(figure) >= FIGURE
        assert figure["rate"] > 0


def test_what_is_measured_is_said_before_it_is() -> None:
    """On stderr, so that the figures can be read by a program."""
    found = CliRunner().invoke(build(), ["bench", "store", *SMALL])
    told = [line for line in found.stderr.splitlines() if line.startswith("measuring: ")]
    assert told[0] == "measuring: store"
    assert len(told) > 2


def test_people_read_one_table_of_eighty_columns() -> None:
    found = CliRunner().invoke(build(), ["bench", "codec", *SMALL[:-1]])
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (head,) = [line.split() for line in lines if "ratio" in line]
    assert head == ["what", "limit", "ours", "ratio", "it", "means"]


@pytest.mark.process
@pytest.mark.long
def test_an_exchange_says_what_it_cost_both_sides(tmp_path: Path) -> None:
    told = bench("exchange", "--in-flight", "2", "--results", str(tmp_path))
    check(told, "exchange")
    ours, default = told["figures"]
    assert ours.keys() >= SIDES | COUNTS
    assert default["what"].startswith("default: TLS, signed")
    assert told["default_configuration"]["ratio_to_limit"] > 0
    # A message is a row on each side at least, and nothing is acknowledged without an fsync.
    assert min(ours["statements"], ours["rows"], ours["fsyncs"]) > 0
    (line,) = (tmp_path / HISTORY).read_text().splitlines()
    assert json.loads(line)["benchmark"] == "exchange"
    assert ElementTree.parse(tmp_path / "exchange.svg").getroot().tag.endswith("svg")


@pytest.mark.process
@pytest.mark.long
def test_a_window_is_measured_against_stop_and_wait() -> None:
    told = bench("window", "--in-flight", "2", "--no-default")
    check(told, "window")
    window, waiting = told["figures"]
    assert window["times_stop_and_wait"] > 0
    assert "stop-and-wait" in waiting["what"]


@pytest.mark.process
@pytest.mark.long
def test_a_restart_takes_up_what_was_outstanding() -> None:
    told = bench("restart", "--messages", "3", "--no-default")
    check(told, "restart")
    assert told["figures"][0]["seconds_until_first"] > 0


@pytest.mark.process
@pytest.mark.long
def test_parties_that_hold_much_hold_real_messages(tmp_path: Path) -> None:
    configuration = Configuration(in_flight=4, taken=True)
    ports = make_pair(tmp_path, configuration)
    with open_sides(tmp_path, configuration, ports) as pair:
        first = growth.exchange(pair, 10)
    for side, state in ((SENDER, "out.delivered"), (RECEIVER, "in.confirmed")):
        settings = load(tmp_path / side, environ={}).settings
        growth.multiply(store_path(settings), 3)
        # It is not the store any more that the party had.
        (tmp_path / side / RECORD).unlink()
        add_agreements(tmp_path / side, 3)
        store = open_store(settings)
        with store.reader() as reader:
            assert reader.counts()[state] == 3 * first
            kinds = Counter(row.kind for row in reader.journal_since(0, 100_000))
        assert kinds["acknowledged" if side == SENDER else "confirmed"] == 3 * first
        store.close()
    with open_sides(tmp_path, configuration, ports) as pair:
        assert pair.push(0.2, partners=3)["messages"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["codec", "signature", "store"])
def test_the_parts_are_measured_alone(name: str) -> None:
    told = bench(name)
    check(told, name)
    assert all(figure["us"] > 0 for figure in told["figures"])


def test_more_in_flight_than_can_be_is_refused() -> None:
    found = CliRunner().invoke(build(), ["bench", "exchange", "--in-flight", "257", *SMALL])
    assert found.exit_code == 2
    assert "1 to 256" in found.output


@pytest.mark.parametrize("product", ["as2", "nats", "rabbitmq"])
def test_a_peer_that_is_not_installed_is_said_so(product: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    assert peers.missing(product).startswith("not installed: `make bench-setup`")


def test_the_default_is_what_init_and_partner_add_make() -> None:
    default = replace(Configuration(), in_flight=7, size=9).default
    assert (default.tls, default.signed, default.in_reply) == (True, True, False)
    assert (default.in_flight, default.size) == (7, 9)


def test_an_ordered_message_is_acknowledged_on_its_own_connection() -> None:
    assert not Configuration(ordered=True).in_reply
    assert replace(Configuration(), ordered=True).agreed()["flow.window"] == "64"
    assert Configuration(ordered=True, window=1).agreed()["flow.mode"] == '"stop-and-wait"'


def test_a_ratio_is_taken_within_each_repeat() -> None:
    figure = Figure("x", rates=(10.0, 40.0, 30.0), limits=(100.0, 100.0, 200.0))
    assert figure.rate == 30.0
    assert figure.ratio == 0.15
    assert figure.spread == "0.1-0.4"


def test_the_history_is_short_and_its_picture_has_everybody(tmp_path: Path) -> None:
    figure = Figure("a < b & c", (10.0,), (20.0,))
    others = (PeerFigure("nats", (5.0,)), PeerFigure("rabbitmq", remark="not installed"))
    outcome = Outcome("exchange", "messages", "limit", (figure,), figure, others)
    for _ in range(HISTORY_MAX + 3):
        save(tmp_path, [outcome], now=0)
    lines = [json.loads(line) for line in (tmp_path / HISTORY).read_text().splitlines()]
    assert len(lines) == HISTORY_MAX
    assert lines[-1]["ratio_to_limit"] == 0.5
    assert lines[-1]["peers"] == {"nats": 5.0}
    texts = [
        element.text
        for element in ElementTree.parse(tmp_path / "exchange.svg").iter()
        if element.tag.endswith("text")
    ]
    assert {"limit", "a < b & c", "default: a < b & c", "nats"} <= set(texts)
    assert "rabbitmq" not in texts


async def test_the_network_is_late_and_keeps_the_order() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(100):
            writer.write(piece)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    delay = Delay(0.05)
    door = await delay.open()
    await delay.do({"door": door, "port": server.sockets[0].getsockname()[1]})
    reader, writer = await asyncio.open_connection("127.0.0.1", door)
    began = asyncio.get_running_loop().time()
    for piece in (b"one ", b"two ", b"three"):
        writer.write(piece)
        await asyncio.sleep(0)
    writer.write_eof()
    said = await reader.read()
    writer.close()
    server.close()
    took = asyncio.get_running_loop().time() - began
    assert said == b"one two three"
    # Not sooner; how much later is the machine's business.
    assert took >= 0.1


@pytest.mark.process
def test_the_names_of_the_folder_are_still_run_there() -> None:
    import subprocess

    ran = subprocess.run(
        [sys.executable, "-m", "bench", "protocol", "nothing"], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "no benchmark nothing" in ran.stdout
