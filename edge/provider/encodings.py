"""Content encodings of a provider's answer: gzip, deflate, br and zstd, decoded as the bytes come.

No provider is asked for any, and some compress all the same. What was flushed is given at once. Output comes in pieces of
bounded size, so that a few bytes which stand for gigabytes meet the limits of frames before they meet the memory. A body
that stops in the middle is no error here: what is missing is missing to the protocol above. Pure. Before: ``upstream``.
After: ``capture``.
"""

import sys
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

import brotli

from schemas.errors import TokentrailError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

PIECE_BYTES = 65_536
CHAIN_MAX = 2
"""Nobody compresses more often in earnest, and each one multiplies what a byte can stand for."""
_NAME_CHARS_MAX = 40


class Undecodable(TokentrailError):
    """The encoding is none that is known, or the bytes are not in it."""


class Decoder(Protocol):
    """One encoding's memory."""

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the bytes stand for, in pieces; Undecodable where they are not in the encoding."""


def decoder_of(header: str) -> Decoder | None:
    """The decoder for a Content-Encoding header; None where the bytes are as they are, Undecodable for an unknown one."""
    names = [name.strip().lower() for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    unknown = next((name for name in names if name not in _KNOWN), None)
    if unknown is not None:
        raise Undecodable(f"the content encoding {unknown[:_NAME_CHARS_MAX]!r} is not known")
    if len(names) > CHAIN_MAX:
        raise Undecodable(f"the content is encoded more than {CHAIN_MAX} times")
    decoder: Decoder | None = None
    for name in reversed(names):  # the last one was applied last
        decoder = _KNOWN[name]() if decoder is None else _Chain(decoder, _KNOWN[name]())
    return decoder


class _Chain(Decoder):
    def __init__(self, outer: Decoder, inner: Decoder) -> None:
        self._outer, self._inner = outer, inner

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in self._outer.feed(data):
            yield from self._inner.feed(piece)


class _Zlib(Decoder):
    """gzip: members behind one another, perhaps padded with zeros."""

    name = "gzip"

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._unpacker.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._unpacker = self._next()
            try:
                piece = self._unpacker.decompress(data, PIECE_BYTES)
                data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
                yield piece
                while len(piece) == PIECE_BYTES and not data and not self._unpacker.eof:
                    piece = self._unpacker.decompress(b"", PIECE_BYTES)
                    data = self._unpacker.unused_data
                    yield piece
            except zlib.error as error:
                raise _broken(self.name) from error

    def _next(self) -> "zlib._Decompress":
        return zlib.decompressobj(16 + zlib.MAX_WBITS)


class _Deflate(_Zlib):
    """deflate: zlib's format by the standard, the bare one by half of the servers; the first two bytes tell."""

    name = "deflate"

    def __init__(self) -> None:
        super().__init__()
        self._head: bytes | None = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._head is not None:
            data = self._head + data
            if len(data) < 2:  # noqa: PLR2004 - the header's own size
                self._head = data
                return
            self._head = None
            has_header = data[0] & 0x0F == zlib.DEFLATED and (data[0] << 8 | data[1]) % 31 == 0
            self._unpacker = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        yield from super().feed(data)

    def _next(self) -> "zlib._Decompress":
        raise _broken(self.name)  # nothing may follow its end


class _Brotli(Decoder):
    def __init__(self) -> None:
        self._unpacker = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            if data and self._unpacker.is_finished():
                raise _broken("br")
            while piece := self._unpacker.process(data, output_buffer_limit=PIECE_BYTES):
                yield piece
                data = b""
        except brotli.error as error:
            raise _broken("br") from error


class _Zstd(Decoder):
    """zstd: frames behind one another."""

    def __init__(self) -> None:
        self._unpacker = ZstdDecompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while True:
                if data and self._unpacker.eof:
                    self._unpacker = ZstdDecompressor()
                if not data and (self._unpacker.eof or self._unpacker.needs_input):
                    return
                yield self._unpacker.decompress(data, PIECE_BYTES)
                data = self._unpacker.unused_data if self._unpacker.eof else b""
        except ZstdError as error:
            raise _broken("zstd") from error


def _broken(name: str) -> Undecodable:
    return Undecodable(f"the body is not in its content encoding ({name})")


_KNOWN: dict[str, type[_Zlib | _Brotli | _Zstd]] = {
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
