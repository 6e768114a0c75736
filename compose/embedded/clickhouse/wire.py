"""Bytes on the wire: HTTP content codings, and ClickHouse's own compressed frames (``compress=1``/``decompress=1``).

Purpose: decode a request body whole, encode an answer chunk by chunk as one stream of its coding (one zstd or lz4
frame, one gzip member: clients decode no more than one). Invariants: pure; every encoder's output so far can be
decoded so far, so a stream shows its rows as they come; a decoded body has a limit.

Before it in the flow: ``request`` (decoding), ``execution`` (encoding). After it: the socket.
"""

import zlib
from collections.abc import Callable
from typing import Protocol

import cramjam
import lz4.block
import lz4.frame
import zstandard
from clickhouse_cityhash.cityhash import CityHash128

from compose.embedded.clickhouse import errors
from compose.embedded.clickhouse.errors import QueryError

# A body of 256 MiB that unpacks to more than this is an accident or an attack, not an insert.
DECODED_BYTES_MAX = 1024 * 1024 * 1024

_LZ4, _ZSTD, _NONE = 0x82, 0x90, 0x02
_CHECKSUM_BYTES, _HEADER_BYTES = 16, 9
# ClickHouse's own default for a block of its native protocol.
_FRAME_BYTES = 1024 * 1024
# zstd's Python API has no output limit, so it gets its input in steps and the sum is checked in between.
_ZSTD_STEP_BYTES = 64 * 1024


class Encoder(Protocol):
    """Encodes an answer: ``feed`` every chunk, then ``close`` once."""

    def feed(self, chunk: bytes) -> bytes:
        """Return the encoded bytes for ``chunk``."""

    def close(self) -> bytes:
        """Return what is left."""


class _Plain:
    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def close(self) -> bytes:
        return b""


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._packer = zlib.compressobj(level=3, wbits=window_bits)

    def feed(self, chunk: bytes) -> bytes:
        return self._packer.compress(chunk) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def close(self) -> bytes:
        return self._packer.flush()


class _Lz4:
    def __init__(self) -> None:
        self._packer = lz4.frame.LZ4FrameCompressor(auto_flush=True)
        self._head = bytes(self._packer.begin())

    def feed(self, chunk: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(self._packer.compress(chunk))

    def close(self) -> bytes:
        return self._head + bytes(self._packer.flush())


class _Zstd:
    def __init__(self) -> None:
        self._packer = zstandard.ZstdCompressor(level=1).compressobj()

    def feed(self, chunk: bytes) -> bytes:
        return self._packer.compress(chunk) + self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def close(self) -> bytes:
        return self._packer.flush()


class _Brotli:
    def __init__(self) -> None:
        self._packer = cramjam.brotli.Compressor(level=3)

    def feed(self, chunk: bytes) -> bytes:
        self._packer.compress(chunk)
        return bytes(self._packer.flush())

    def close(self) -> bytes:
        return bytes(self._packer.finish())


class _Frames:
    """ClickHouse's frames: checksum, method, sizes, data; the framing that its native protocol uses too."""

    def feed(self, chunk: bytes) -> bytes:
        parts = (chunk[at : at + _FRAME_BYTES] for at in range(0, len(chunk), _FRAME_BYTES))
        return b"".join(_frame(part) for part in parts)

    def close(self) -> bytes:
        return b""


_ENCODERS: dict[str, Callable[[], Encoder]] = {
    "zstd": _Zstd,
    "lz4": _Lz4,
    "br": _Brotli,
    "gzip": lambda: _Zlib(31),
    "deflate": lambda: _Zlib(15),
}


def accepted_coding(accept_encoding: str) -> str | None:
    """Return the coding to answer with, by our preference among those the client accepts; None for none."""
    offered = {part.split(";")[0].strip().lower() for part in accept_encoding.split(",")}
    return next((coding for coding in ("lz4", "zstd", "br", "gzip", "deflate") if coding in offered), None)


def encoder(coding: str | None, *, frames: bool = False) -> Encoder:
    """Return an encoder for an HTTP ``coding``, for ClickHouse's frames, or for plain bytes."""
    if frames:
        return _Frames()
    return _Plain() if coding is None else _ENCODERS[coding]()


def decoded(body: bytes, coding: str, *, frames: bool = False) -> bytes:
    """Return the plain body; raise `QueryError` (271) where it is not what it says, or unpacks to too much."""
    try:
        plain = _decoders(coding)(body) if coding not in {"", "identity"} else body
        return _unframed(plain) if frames else plain
    except (zlib.error, RuntimeError, ValueError, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise QueryError.refusal(errors.CANNOT_DECOMPRESS, f"Cannot decompress the body: {error}") from error


def _decoders(coding: str) -> Callable[[bytes], bytes]:
    found = {"zstd": _unzstd, "lz4": _unlz4, "br": _unbrotli, "gzip": _unzlib, "deflate": _unzlib}.get(coding)
    if found is None:
        raise QueryError.refusal(errors.BAD_ARGUMENTS, f"Unknown Content-Encoding: {coding}")
    return found


def _too_large() -> QueryError:
    return QueryError.refusal(
        errors.QUERY_IS_TOO_LARGE, f"The body unpacks to more than {DECODED_BYTES_MAX} bytes"
    )


def _unzlib(body: bytes) -> bytes:
    parts, total = [], 0
    while body:
        unpacker = zlib.decompressobj(wbits=47)
        part = unpacker.decompress(body, DECODED_BYTES_MAX - total + 1)
        total += len(part)
        if total > DECODED_BYTES_MAX:
            raise _too_large()
        if not unpacker.eof:
            raise ValueError("it ends in the middle")
        parts.append(part)
        body = unpacker.unused_data
    return b"".join(parts)


def _unlz4(body: bytes) -> bytes:
    # clickhouse-connect writes one frame per block of rows.
    parts, total = [], 0
    while body:
        unpacker = lz4.frame.LZ4FrameDecompressor()
        part = unpacker.decompress(body, max_length=DECODED_BYTES_MAX - total + 1)
        total += len(part)
        if total > DECODED_BYTES_MAX:
            raise _too_large()
        if not unpacker.eof:
            raise ValueError("it ends in the middle")
        parts.append(bytes(part))
        body = unpacker.unused_data or b""
    return b"".join(parts)


def _unzstd(body: bytes) -> bytes:
    parts, total = [], 0
    while body:
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        at = 0
        while at < len(body) and not unpacker.eof:
            part = unpacker.decompress(body[at : at + _ZSTD_STEP_BYTES])
            at += _ZSTD_STEP_BYTES
            total += len(part)
            if total > DECODED_BYTES_MAX:
                raise _too_large()
            parts.append(part)
        if not unpacker.eof:
            raise ValueError("it ends in the middle")
        body = unpacker.unused_data + body[at:]
    return b"".join(parts)


def _unbrotli(body: bytes) -> bytes:
    plain = bytes(cramjam.brotli.decompress(body))
    if len(plain) > DECODED_BYTES_MAX:
        raise _too_large()
    return plain


def _checksum(data: bytes) -> bytes:
    value = int(CityHash128(data))
    # ClickHouse writes the high half of CityHash128 v1.0.2 first.
    return (value >> 64).to_bytes(8, "little") + (value & (1 << 64) - 1).to_bytes(8, "little")


def _frame(plain: bytes) -> bytes:
    packed = bytes(lz4.block.compress(plain, store_size=False))
    head = (
        bytes([_LZ4]) + (len(packed) + _HEADER_BYTES).to_bytes(4, "little") + len(plain).to_bytes(4, "little")
    )
    return _checksum(head + packed) + head + packed


def _unframed(body: bytes) -> bytes:
    parts: list[bytes] = []
    at = total = 0
    while at < len(body):
        start = at + _CHECKSUM_BYTES
        head = body[start : start + _HEADER_BYTES]
        if len(head) < _HEADER_BYTES:
            raise ValueError("a frame ends in its header")
        end = start + int.from_bytes(head[1:5], "little")
        plain_bytes = int.from_bytes(head[5:9], "little")
        total += plain_bytes
        if total > DECODED_BYTES_MAX:
            raise _too_large()
        if end > len(body) or end <= start:
            raise ValueError("a frame ends in the middle")
        if _checksum(body[start:end]) != body[at:start]:
            raise ValueError("checksum does not match")
        parts.append(_unpacked(head[0], body[start + _HEADER_BYTES : end], plain_bytes))
        at = end
    return b"".join(parts)


def _unpacked(method: int, packed: bytes, plain_bytes: int) -> bytes:
    if method == _LZ4:
        return bytes(lz4.block.decompress(packed, uncompressed_size=plain_bytes))
    if method == _ZSTD:
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=plain_bytes)
    if method == _NONE:
        return packed
    raise ValueError(f"unknown method 0x{method:02x}")
