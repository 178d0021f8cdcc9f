"""What is done about one damaged message, rule by rule; `test_damage` tries everything at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncewire.errors import NotAllowed, StoreDamaged, UnknownMessage
from oncewire.handler.content_digest import with_whole_answer
from oncewire.handler.runtime.handler import check_files
from oncewire.message.instant import SECOND
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool import FileSpool
from tests.handler.damage import Damage, Scene, damaged_scene, make_base
from tests.handler.network import Network, Stores

Stage = Callable[..., Scene]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make_base(folder, "window")
    return folder


@pytest.fixture
def stage(base: Path, tmp_path: Path) -> Iterator[Stage]:
    found: list[Scene] = []

    def begin(*words: str) -> Scene:
        scene = damaged_scene(base, tmp_path / str(len(found)), "window", Damage(*words))
        assert scene is not None
        found.append(scene)
        return scene

    yield begin
    for scene in found:
        scene.close()


def ids(scene: Scene) -> list[str]:
    return [message_id.partition("@")[0] for message_id, _ in scene.given]


@pytest.mark.parametrize("body", ["NULL", "x'00ff'"])
def test_the_incident_names_the_message_and_the_next_verb(stage: Stage, body: str) -> None:
    scene = stage("beta", "incoming_bytes", "body", body)
    scene.take()
    assert ids(scene) == ["order-1"]
    ((message_id, _, reason),) = scene.incidents("beta")
    assert message_id == "order-2@alpha"
    assert "`oncewire abandon order-2@alpha`" in reason
    # It was given to nobody, and nothing says that it was.
    with scene.pair.beta.context.store.reader() as reader:
        (stored,) = reader.incoming_list(states=[IncomingState.READY])[2:]
    assert stored.incoming.message_id == "order-2@alpha"
    assert scene.pair.kinds("beta").count("handed_over") == 1
    scene.pair.beta.abandon("order-2@alpha")
    scene.pair.settle("beta")
    scene.take()
    assert ids(scene) == ["order-1", "order-3", "order-4"]
    assert scene.incidents("beta") == []
    kinds = scene.pair.kinds("beta")
    assert (kinds.count("abandoned"), kinds.count("skipped")) == (1, 1)


def test_lost_bytes_are_named_although_nothing_is_left_of_them(stage: Stage) -> None:
    scene = stage("beta", "incoming_bytes")
    scene.take()
    assert ids(scene) == ["order-1"]
    assert [one[0] for one in scene.incidents("beta")] == ["order-2@alpha"]


def test_a_state_that_no_list_can_find_is_found_at_the_start(stage: Stage) -> None:
    scene = stage("beta", "incoming", "state", "'garbage'")
    assert [one[0] for one in scene.incidents("beta")] == ["order-2@alpha"]


def test_a_damaged_row_of_a_sender_is_named_and_can_be_given_up(stage: Stage) -> None:
    scene = stage("alpha", "outgoing", "proved_by", "'garbage'")
    scene.pair.pass_time(10 * SECOND)
    assert [one[0] for one in scene.incidents("alpha")] == ["order-6@alpha"]
    scene.pair.alpha.abandon("order-6@alpha")
    scene.pair.settle("alpha")
    with scene.pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-6@alpha")
    assert stored is not None
    assert stored.outgoing.state is OutgoingState.UNKNOWN
    assert scene.incidents("alpha") == []
    # What was before it goes before what comes after it, over the end of the epoch.
    scene.away = False
    for _ in range(12):
        scene.pair.pass_time(10 * SECOND)
    scene.send(9)
    scene.take()
    assert ids(scene)[4:] == ["order-5", "order-7", "order-8", "order-9"]


def test_changed_bytes_are_not_sent(stage: Stage) -> None:
    scene = stage("alpha", "outgoing_bytes", "body", "substr({c}, 1, length({c}) - 1)")
    scene.away = False
    for _ in range(12):
        scene.pair.pass_time(10 * SECOND)
    ((message_id, _, reason),) = scene.incidents("alpha")
    assert message_id == "order-6@alpha"
    assert "have changed" in reason
    # Nobody was asked to take them.
    assert "refused" not in scene.pair.kinds("beta")


def test_an_answer_whose_bytes_changed_is_given_anew(stage: Stage) -> None:
    scene = stage("beta", "incoming_bytes", "answer_body", "x'00ff'")
    with scene.pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id("order-2@alpha")
    assert stored.answer is not None
    assert with_whole_answer(stored).answer is None
    scene.take()
    assert "order-2" in ids(scene)


def test_damaged_terms_are_mended_by_the_next_message_under_them(stage: Stage) -> None:
    scene = stage("beta", "terms", "content", "replace({c}, '\"window\":3', '\"window\":4')")
    with scene.pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id("order-2@alpha")
        with pytest.raises(StoreDamaged, match="something else"):
            tx.terms(stored.incoming.terms_id)
    scene.take()
    assert ids(scene) == []
    scene.away = False
    scene.send(9)
    for _ in range(12):
        scene.pair.pass_time(10 * SECOND)
    scene.take()
    assert ids(scene)[:4] == ["order-1", "order-2", "order-3", "order-4"]


def test_a_kept_agreement_that_is_damaged_is_the_one_of_today_if_that_is_the_same(
    stage: Stage,
) -> None:
    scene = stage("beta", "agreement", "content", "'garbage'")
    scene.take()
    assert len(ids(scene)) == 4
    assert scene.incidents("beta") == []


def test_a_file_of_the_spool_that_changed_is_not_sent(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path)
    name, size = spool.put([b"content"])
    parcel = StoredParcel("text/xml", (), (SpoolSlice(name, 0, size),))
    check_files(spool, parcel)
    (tmp_path / name).write_bytes(b"Content")
    with pytest.raises(StoreDamaged, match="has changed"):
        check_files(spool, parcel)


def test_where_no_order_is_agreed_a_numbered_stream_goes_on(
    tmp_path: Path, on_disk: Stores
) -> None:
    pair = Network.pair("window", "[sequence]\nordered = false\n", store=on_disk)
    pair.send_all((1, 2, 3))
    pair.close()
    Damage("beta", "incoming_bytes", "body", "NULL").do(tmp_path, 2)
    pair = Network.pair("window", "[sequence]\nordered = false\n", store=on_disk)
    assert pair.take() == ["order-1@alpha", "order-3@alpha"]
    pair.close()


def test_what_can_be_read_is_the_application_s_to_take(stage: Stage) -> None:
    scene = stage("beta", "journal_row", "digest", "NULL")
    with pytest.raises(NotAllowed, match="has not been offered to the application"):
        scene.pair.beta.abandon("order-1@alpha")
    with pytest.raises(UnknownMessage):
        scene.pair.beta.abandon("nobody@alpha")
    with scene.pair.beta.context.store.reader() as reader:
        states = [one.incoming.state for one in reader.incoming("order-1@alpha")]
    assert states == [IncomingState.READY]
