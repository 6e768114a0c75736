"""Bytes on the wire: content codings, ClickHouse's frames, and the headers that a format repeats."""

import gzip
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from compose.embedded.clickhouse import formats, wire
from compose.embedded.clickhouse.errors import QueryError

CODINGS = ["gzip", "deflate", "lz4", "zstd", "br"]


@pytest.mark.parametrize("coding", CODINGS)
@given(chunks=st.lists(st.binary(max_size=300), max_size=5))
def test_a_coding_is_undone(coding, chunks):
    """What an encoder made of chunks, the decoder reads as their concatenation."""
    encoder = wire.encoder(coding)
    packed = b"".join(encoder.feed(chunk) for chunk in chunks) + encoder.close()
    assert wire.decoded(packed, coding) == b"".join(chunks)


@given(chunks=st.lists(st.binary(max_size=300), max_size=5))
def test_frames_are_undone(chunks):
    """ClickHouse's own frames carry any bytes."""
    encoder = wire.encoder(None, frames=True)
    packed = b"".join(encoder.feed(chunk) for chunk in chunks) + encoder.close()
    assert wire.decoded(packed, "", frames=True) == b"".join(chunks)


def test_a_large_chunk_becomes_several_frames():
    """A frame holds at most a mebibyte, as ClickHouse's do."""
    data = bytes(range(256)) * 10_000
    packed = wire.encoder(None, frames=True).feed(data)
    assert wire.decoded(packed, "", frames=True) == data


@pytest.mark.parametrize(
    ("coding", "unpacker"),
    [
        ("gzip", zlib.decompressobj(31).decompress),
        ("deflate", zlib.decompressobj(15).decompress),
        ("lz4", lz4.frame.LZ4FrameDecompressor().decompress),
        ("zstd", zstandard.ZstdDecompressor().decompressobj().decompress),
    ],
)
def test_what_was_sent_can_be_shown(coding, unpacker):
    """Every chunk can be decoded before the next one exists, so rows appear as they come."""
    encoder = wire.encoder(coding)
    assert unpacker(encoder.feed(b"first row\n")) == b"first row\n"
    assert unpacker(encoder.feed(b"second row\n")) == b"second row\n"


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("lz4", lz4.frame.compress), ("zstd", zstandard.compress)]
)
def test_a_body_may_be_several_members(coding, pack):
    """clickhouse-connect writes one lz4 frame per block; they follow one another."""
    assert wire.decoded(pack(b"one,") + pack(b"two"), coding) == b"one,two"


@pytest.mark.parametrize("coding", CODINGS)
def test_a_broken_body_is_refused(coding):
    """Bytes that are not of the coding, or end early, are code 271 and never half a body."""
    encoder = wire.encoder(coding)
    packed = encoder.feed(b"x" * 1000) + encoder.close()
    for broken in (b"not packed at all", packed[: len(packed) // 2]):
        with pytest.raises(QueryError) as caught:
            wire.decoded(broken, coding)
        assert caught.value.code == 271


def test_a_changed_frame_is_refused():
    """The checksum of a frame finds a changed byte."""
    packed = bytearray(wire.encoder(None, frames=True).feed(b"some rows\n"))
    packed[-1] ^= 1
    with pytest.raises(QueryError, match="checksum"):
        wire.decoded(bytes(packed), "", frames=True)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_refused(coding, monkeypatch):
    """A body that unpacks to more than the limit is refused with code 223."""
    monkeypatch.setattr(wire, "DECODED_BYTES_MAX", 10_000)
    encoder = wire.encoder(coding)
    with pytest.raises(QueryError) as caught:
        wire.decoded(encoder.feed(b"0" * 200_000) + encoder.close(), coding)
    assert caught.value.code == 223


def test_an_unknown_coding_is_refused():
    """A coding that we do not know is an error, not data."""
    with pytest.raises(QueryError) as caught:
        wire.decoded(b"x", "snappy")
    assert caught.value.code == 36


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("br;q=1.0, gzip;q=0.8", "br"),
        ("gzip, lz4", "lz4"),
        ("*", None),
    ],
)
def test_accepted_coding(header, coding):
    """The answer's coding is one that the client named."""
    assert wire.accepted_coding(header) == coding


@pytest.mark.parametrize(
    ("output_format", "block", "header"),
    [
        ("CSV", b"1\n", b""),
        ("CSVWithNames", b'"a","b"\n1,2\n', b'"a","b"\n'),
        ("CSVWithNames", b'"a\n""b""","c"\n1,2\n', b'"a\n""b""","c"\n'),
        ("CSVWithNamesAndTypes", b'"a"\n"UInt8"\n1\n', b'"a"\n"UInt8"\n'),
        ("TSVWithNames", b'a"\n1\n', b'a"\n'),
        ("JSONCompactEachRowWithNamesAndTypes", b'["a"]\n["UInt8"]\n[1]\n', b'["a"]\n["UInt8"]\n'),
        ("RowBinaryWithNames", b"\x02\x01a\x02bc\x07\x08", b"\x02\x01a\x02bc"),
        ("RowBinaryWithNamesAndTypes", b"\x01\x01a\x05UInt8\x07", b"\x01\x01a\x05UInt8"),
        ("RowBinaryWithNames", b"\x01\x80\x01" + b"n" * 128 + b"\x07", b"\x01\x80\x01" + b"n" * 128),
    ],
)
def test_the_header_of_a_block(output_format, block, header):
    """The bytes that every block repeats are found by the format's own rules."""
    assert block[: formats.header_bytes(output_format, block)] == header


@pytest.mark.parametrize(
    "output_format", ["JSON", "Parquet", "Arrow", "Pretty", "XML", "TSKV", "SomethingNew"]
)
def test_documents_do_not_stream(output_format):
    """A format with a beginning and an end, or one that we do not know, is made whole."""
    assert not formats.is_streamable(output_format)
