"""Evidence: for each message of an archive whether its receiver signed for exactly its documents.

The bytes are judged, and not what a journal says of them: the signature of the acknowledgement by
the certificates of the To Party, and its digests by the message and its documents. All of it is the
code by which a handler believes a message, run by Spark's tasks; the driver lists the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql import SparkSession

from oncewire.errors import EbxmlError, OncewireError, SecurityFailure
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import MessageKind
from oncewire.message.form import Validation
from oncewire.pipeline.lake.columns import EVIDENCE
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import data_path
from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, Entry, local_path
from oncewire.pipeline.session import cores_of, pinned
from oncewire.pipeline.sources.archive import Content, Piece, contents, pieces
from oncewire.pipeline.tasks import RESULT, Batches, results, returning, sentence
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture
from oncewire.wire.parcel import ReadFault, Received
from oncewire.wire.security import certificates, references, signature
from oncewire.wire.security.certificates import Trust, load_certificate
from oncewire.wire.security.references import USUAL, signature_parts

MESSAGE, ACKNOWLEDGEMENT = 0, 1
"""What a raw message is to the message whose id it is under."""

PAIRED = "message_id string, what int, file string, position int, data binary"


class Signers(NamedTuple):
    """The certificates of each party, as PEM or DER."""

    by_party: Mapping[str, tuple[bytes, ...]]

    def trusted(self) -> dict[str, Trust]:
        """Whom each party's name stands for."""
        return {
            party: Trust(pinned=tuple(map(load_certificate, found)))
            for party, found in self.by_party.items()
        }


@dataclass(frozen=True, slots=True)
class Proofs:
    """What an archive proves."""

    version: int
    messages: int
    proven: int


def prove_archive(
    spark: SparkSession, lake: Lake, archives: Sequence[str | Path], signers: Signers
) -> Proofs:
    """Make the table `evidence` of all messages in some archives, and publish it."""
    signers.trusted()  # A certificate that cannot be read is refused here.
    places = [str(local_path(place, OF_AN_ARCHIVE).resolve()) for place in archives]
    with pinned(spark), lake.writing():
        version = lake.shown()
        found = [piece for place in places for piece in pieces(place)]
        name = f"v{version.number + 1:08d}"
        lake.clear(data_path("evidence", name))
        tasks = max(cores_of(spark), len(found))
        raw = spark.range(0, len(found), 1, max(1, len(found)))
        pairs = raw.mapInArrow(partial(_read, found), PAIRED).repartition(tasks, "message_id")
        ordered = pairs.sortWithinPartitions("message_id", "what", "file", "position")
        work = partial(_judge, lake.root, name, signers)
        written = results(ordered.mapInArrow(returning(work), RESULT))
        entries = [entry for entry, _ in written]
        published = lake.publish(version.with_table("evidence", entries))
    proven = sum(count for _, count in written)
    return Proofs(published.number, sum(entry.rows for entry in entries), proven)


# --- in the tasks -----------------------------------------------------------------------------


def _read(found: Sequence[Piece], batches: Batches) -> Batches:
    """The raw messages of some pieces, each under the id of the message that it is or answers."""
    import pyarrow as pa

    names = ("message_id", "what", "file", "position", "data")
    kinds = (pa.string(), pa.int32(), pa.string(), pa.int32(), pa.binary())
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for content in contents(found[number]):
                rows = list(_paired(content))
                if rows:
                    columns = zip(*rows, strict=True)
                    arrays = [
                        pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _paired(content: Content) -> Iterator[tuple[str, int, str, int, bytes]]:
    place = content.found.path + (f" {content.member}" if content.member else "")
    for position, received in enumerate(_messages(content.data)):
        message = received.message
        if message.kind is MessageKind.NORMAL:
            yield message.header.message_id, MESSAGE, place, position, content.data
        for answered in {each.ref_to_message_id for each in message.acknowledgments}:
            yield answered, ACKNOWLEDGEMENT, place, position, content.data


def _messages(data: bytes) -> Sequence[Received]:
    """The messages of a file; what cannot be read is told by the table `envelopes`."""
    try:
        return codec.read_all(open_capture(data).parcel, validation=Validation.OFF)
    except (ReadFault, OncewireError):
        return ()


def _judge(root: Path, name: str, signers: Signers, batches: Batches) -> tuple[Entry, int]:
    """The task that judges the messages that came to it; returns how many are proven."""
    trusted = signers.trusted()
    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    file = TableFile(root, "evidence", data_path("evidence", f"{name}/{part}"), EVIDENCE)
    proven = 0
    rows = (row for batch in batches for row in batch.to_pylist())
    for message_id, group in groupby(rows, lambda row: row["message_id"]):
        said = evidence_of(message_id, group, trusted)
        proven += said["proven"]
        file.add([tuple(said.get(column) for column in EVIDENCE.fieldNames())])
    return file.close(), proven


def evidence_of(
    message_id: str, raw: Iterable[Mapping[str, Any]], trusted: Mapping[str, Trust]
) -> dict[str, Any]:
    """The row of a message, from the raw messages that are it, or answer it."""
    kept: list[list[tuple[str, Received]]] = [[], []]
    for row in raw:
        kept[row["what"]].append((row["file"], _messages(row["data"])[row["position"]]))
    messages, answers = kept
    said: dict[str, Any] = {"message_id": message_id, "proven": False}
    if not messages:
        return said | _of_answer(*answers[0]) | {"problem": "The message itself is not here."}
    said |= _of_message(*messages[0])
    if len({identity_digest(received.message) for _, received in messages}) > 1:
        return said | {"problem": "There are two messages of this id, with different contents."}
    problem = "There is no acknowledgement." if not answers else ""
    for file, answer in answers:
        told = _of_answer(file, answer)
        try:
            certificate = check_receipt(messages[0][1], answer, trusted)
        except (SecurityFailure, EbxmlError, ReadFault) as failure:
            problem = problem or sentence(failure)
            said = told | said
            continue
        known = certificates.summary(certificate)
        proof = {"signer": known.subject, "signer_sha256": known.fingerprint}
        return said | told | proof | {"proven": True}
    return said | {"problem": problem}


def _of_message(file: str, received: Received) -> dict[str, Any]:
    header = received.message.header
    return {
        "from_party": str(header.from_party),
        "to_party": str(header.to_party),
        "cpa_id": header.cpa_id,
        "conversation_id": header.conversation_id,
        "sent_at": header.timestamp,
        "document_digests": [payload.digest for payload in received.message.payloads],
        "message_file": file,
    }


def _of_answer(file: str, answer: Received) -> dict[str, Any]:
    header = answer.message.header
    return {
        "ack_message_id": header.message_id,
        "acknowledged_at": header.timestamp,
        "ack_file": file,
    }


def check_receipt(message: Received, answer: Received, trusted: Mapping[str, Trust]) -> Any:
    """The certificate by which the To Party signed for exactly this message; SecurityFailure says
    why nothing proves that."""
    header = message.message.header
    sent = _references_of(message, trusted.get(str(header.from_party)))
    if not answer.signed:
        raise SecurityFailure("the acknowledgement is not signed")
    trust = trusted.get(str(header.to_party))
    if trust is None:
        raise SecurityFailure(f"no certificate of {header.to_party} is known")
    parts = signature_parts(answer)
    # A certificate that has expired since was good for what was signed with it before.
    at = answer.message.header.timestamp
    verified = signature.verify_signature(answer.octets, parts, trust, at)
    believed = codec.read_verified(answer, verified).message
    named = [
        each for each in believed.acknowledgments if each.ref_to_message_id == header.message_id
    ]
    if len(named) != 1:
        raise SecurityFailure("the signature does not cover one acknowledgement of this message")
    theirs = [
        references.acknowledged(each.uri, each.digest_method, each.digest_value)
        for each in named[0].references
    ]
    references.check_acknowledged(theirs, sent)
    return verified.certificate


def _references_of(message: Received, trust: Trust | None) -> Any:
    """What a receipt must name: what the message's own signature covers, which must hold, or what
    its bytes are."""
    parts = signature_parts(message)
    if not message.signed:
        return signature.computed_references(message.octets, parts, USUAL)
    if trust is None:
        return signature.covered(message.octets, parts).references
    at = message.message.header.timestamp
    return signature.verify_signature(message.octets, parts, trust, at).references
