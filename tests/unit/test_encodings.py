"""Content encodings: whatever the cuts, the same bytes; nothing but one typed error; bounded pieces."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.provider.encodings import PIECE_BYTES, Undecodable, decoder_of


def raw_deflate(data):
    """Give deflate without its header, as half of the servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACK = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
PACKED = [*PACK.items(), ("deflate", raw_deflate), ("X-GZIP", gzip.compress)]
TEXT = b'data: {"choices":[]}\n\n' * 200


def unpacked(name, pieces):
    """Give what a decoder makes of pieces."""
    decoder = decoder_of(name)
    return b"".join(out for piece in pieces for out in decoder.feed(piece))


@pytest.mark.parametrize(("name", "pack"), PACKED)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_any_cuts_give_the_same(name, pack, size):
    """A body in one read, in sevens and byte by byte is the same body."""
    packed = pack(TEXT)
    assert unpacked(name, [packed[at : at + size] for at in range(0, len(packed), size)]) == TEXT


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_members_behind_one_another(name, size):
    """Several members or frames are one body, wherever they are cut; gzip may be padded."""
    packed = PACK[name](TEXT) + PACK[name](b"more") + (b"\0" * 9 if name == "gzip" else b"")
    assert unpacked(name, [packed[at : at + size] for at in range(0, len(packed), size)]) == TEXT + b"more"


def test_encoded_twice():
    """Two encodings are undone in the reverse order of their names; names that change nothing are nothing."""
    assert unpacked("gzip, identity, br", [brotli.compress(gzip.compress(TEXT))]) == TEXT
    assert decoder_of("identity") is decoder_of("") is None


@pytest.mark.parametrize("name", ["lzw", "aes128gcm", "gzip, rot13", "gzip, gzip, gzip", "*" * 1000])
def test_unknown(name):
    """An encoding that is not known, or too many, is one short typed error."""
    with pytest.raises(Undecodable) as said:
        decoder_of(name)
    assert len(str(said.value)) < 120


@pytest.mark.parametrize("name", PACK)
def test_broken(name):
    """Bytes that are not in the encoding are a typed error that names it."""
    with pytest.raises(Undecodable, match=name):
        unpacked(name, [b"data: this is plain text, whatever the header says\n\n" * 4])


@pytest.mark.parametrize("name", PACK)
def test_a_cut_is_no_error(name):
    """A body that stops in the middle gives what came; what is missing is for the protocol above to say."""
    packed = PACK[name](TEXT)
    assert TEXT.startswith(unpacked(name, [packed[:-5]]))


@pytest.mark.parametrize("name", PACK)
def test_a_bomb_comes_in_pieces(name):
    """Few bytes that stand for many times as much are given in pieces of bounded size, on demand."""
    packed = PACK[name](bytes(8 << 20))
    assert len(packed) < 50_000
    sizes = [len(piece) for piece in decoder_of(name).feed(packed)]
    assert sum(sizes) == 8 << 20
    assert max(sizes) <= 4 * PIECE_BYTES


@given(st.sampled_from(sorted(PACK)), st.binary(max_size=300), st.booleans())
@settings(max_examples=200)
def test_any_bytes(name, data, behind):
    """Any bytes, also behind a whole body, give bytes or the typed error, never another exception."""
    pieces = [PACK[name](TEXT), data] if behind else [data]
    try:
        assert unpacked(name, pieces) is not None
    except Undecodable:
        assert data
