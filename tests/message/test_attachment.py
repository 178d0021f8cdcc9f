"""What NHS Spine says of an attachment, in the words of real messages."""

from __future__ import annotations

import pytest

from oncewire.message.envelope import Reference
from oncewire.message.payload import Attachment, attachment_in, message_named, naming

TEXTS = {
    'Filename="588210BB_00011000.tif" ContentType=image/tiff Compressed=No LargeAttachment=Yes '
    "OriginalBase64=Yes Length=4718592": Attachment(
        "588210BB_00011000.tif", "image/tiff", False, True, True, 4_718_592
    ),
    'Filename="857419DE_Some.Hl7" ContentType=text/xml Compressed=Yes LargeAttachment=No '
    'OriginalBase64=No Length=723420 DomainData="X-GP2GP-Skeleton: Yes"': Attachment(
        "857419DE_Some.Hl7", "text/xml", compressed=True, length=723_420
    ),
    # A name may look like what follows it.
    'Filename="a (Compressed=Yes Length=1) b.tif" ContentType=image/tiff Compressed=No': Attachment(
        "a (Compressed=Yes Length=1) b.tif", "image/tiff"
    ),
    "Filename=FB01ED63_image1.jpeq ContentType=application/octet-stream Compressed=No": Attachment(
        "FB01ED63_image1.jpeq", "application/octet-stream"
    ),
    # What is no length is none.
    'Filename="a" ContentType=a/b Length=many': Attachment("a", "a/b"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_read(text: str) -> None:
    reference = Reference("mid:1", descriptions=(("en", text),))
    assert attachment_in(reference) == TEXTS[text]


def test_another_description_is_none() -> None:
    assert attachment_in(Reference("cid:1", descriptions=(("en", "HL7 payload"),))) is None
    assert attachment_in(Reference("cid:1")) is None


@pytest.mark.parametrize("name", ["a.tif", "a b.tif", "Length=3", 'say "hi".txt', "two\nlines"])
def test_what_is_written_is_read_again(name: str) -> None:
    said = Attachment(name, "text/plain; charset=utf-8", compressed=True, large=True, length=7)
    read = attachment_in(said.described("mid:1"))
    safe = name.replace('"', "_").replace("\n", "_")
    assert read == Attachment(safe, "text/plain", compressed=True, large=True, length=7)


@pytest.mark.parametrize("name", ["477B7133-6CED", "3-of-200.doc@alpha", "odd id/with%signs"])
def test_a_message_is_named_by_its_id(name: str) -> None:
    assert message_named(Reference(naming(name))) == name
    assert message_named(Reference("MID:" + naming(name)[4:])) == name


def test_other_references_name_no_message() -> None:
    assert message_named(Reference("cid:payload")) is None
