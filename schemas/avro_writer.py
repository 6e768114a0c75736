"""Avro's binary encoding of our own structs, by a function that is written for each of them.

fastavro's writer spends its time proving which branch of a union a value belongs to (20 µs for a delta); a struct says
that by its type. So each type has one straight function, made once as source text from its fields, as the standard
library's dataclasses are: no call per field, and what holds its default is put down in runs. The bytes are fastavro's,
which a property test holds. Before: ``avro``. After: ``avro_reader`` reads them; ``codec``.
"""

import typing
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import msgspec

from schemas.avro_types import given_words, not_none
from schemas.events import Struct

Write = Callable[[Any, bytearray], None]
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_LAST, _LAST_TWO = 1 << 7, 1 << 14
_ENDS = [bytes([n]) for n in range(_LAST)]
_END_PAIRS = [bytes((n & 0x7F | 0x80, n >> 7)) for n in range(_LAST_TWO)]
_PAIRS = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_LAST_TWO)]
"""The groups of seven bits of a long, two at a time, low ones first: time stamps have eight."""
_KEPT_MAX, _KEPT_BYTES_MAX = 4096, 400
_SHORT_CHARS_MAX = 40
_RUN_MIN = 3
"""So many fields that hold their defaults are worth a question of their own."""
_NEVER = object()
"""The default of a field without one, or without one that is a plain value: no value is this."""


class _Field(NamedTuple):
    name: str  # of the local variable
    type: Any
    default: Any
    encoded: bytes  # the default's


class _Kept(dict[Any, bytes]):
    """What was encoded lately, by its value: ids, names and words come again and again."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, value: Any) -> bytes:
        if len(self) >= _KEPT_MAX:
            self.clear()
        encoded = self._encode(value)
        if len(encoded) <= _KEPT_BYTES_MAX:
            self[value] = encoded
        return encoded


@cache
def writer_of(record: type[Struct]) -> Callable[[Struct], bytes]:
    """An encoder for a struct type: value → Avro body, without the single-object header. Made once in a process."""
    write = _Writers().of(record)

    def encode(value: Struct) -> bytes:
        out = bytearray()
        write(value, out)
        return bytes(out)

    return encode


def _long(value: int) -> bytes:
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise OverflowError(f"{value} does not fit Avro's 64-bit long")
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    data = b""
    while rest >= _LAST_TWO:
        data += _PAIRS[rest & 0x3FFF]
        rest >>= 14
    return data + (_ENDS[rest] if rest < _LAST else _END_PAIRS[rest])


def string_bytes(value: str) -> bytes:
    """A string: its length in bytes, and these."""
    data = value.encode()
    return _long(len(data)) + data


_short = _Kept(string_bytes)


class _Writers:
    """Makes the functions: of a record and of the records in it, which share one namespace."""

    def __init__(self) -> None:
        self._made: dict[type[Struct], Write] = {}
        self._names: dict[str, Any] = {
            "astuple": msgspec.structs.astuple,
            "long": _long,
            "string": string_bytes,
            "short": _short,
        }

    def of(self, record: type[Struct]) -> Write:
        """The function that writes a value of this type behind what is in a bytearray."""
        if record not in self._made:
            source = "\n".join(self._function(record))
            exec(compile(source, f"<avro of {record.__name__}>", "exec"), self._names)  # noqa: S102 - our own text
            self._made[record] = self._names[_name(record)]
        return self._made[record]

    def _function(self, record: type[Struct]) -> Iterator[str]:
        infos = msgspec.structs.fields(record)
        fields, words = [_field(nth, info) for nth, info in enumerate(infos)], given_words(infos)
        yield f"def {_name(record)}(value, out):"
        yield "    append = out.append"
        yield f"    {', '.join(field.name for field in fields)}, = astuple(value)"
        if words > 1:  # who it is about: the same for all that a generation says
            heads = self._called(f"heads_{record.__name__}", _Kept(_words_of(fields[:words])))
            yield f"    out += {heads}[{', '.join(field.name for field in fields[:words])}]"
            fields = fields[words:]
        yield from self._fields(fields, "    ")

    def _fields(self, fields: Sequence[_Field], indent: str) -> Iterator[str]:
        """Fields in their order; asked in ever smaller runs whether they all hold their defaults."""
        if len(fields) < _RUN_MIN:
            for field in fields:
                yield from self._value(field.name, field.type, indent)
            return
        half = len(fields) // 2
        inner = indent
        if all(field.default is not _NEVER for field in fields):
            held = " and ".join(f"{field.name} is {self._constant(field.default)}" for field in fields)
            run = b"".join(field.encoded for field in fields)
            yield f"{indent}if {held}: out += {run!r}"
            yield f"{indent}else:"
            inner = indent + "    "
        yield from self._fields(fields[:half], inner)
        yield from self._fields(fields[half:], inner)

    def _value(self, name: str, kind: Any, indent: str) -> Iterator[str]:
        arguments = typing.get_args(kind)
        inner = indent + "    "
        if typing.get_origin(kind) is list:
            yield f"{indent}if {name}:"
            yield from self._value(f"len({name})", int, inner)
            yield f"{inner}for {name}_item in {name}:"
            yield from self._value(f"{name}_item", arguments[0], inner + "    ")
            yield f"{indent}append(0)"
        elif arguments:
            yield f"{indent}if {name} is None: append(0)"
            yield f"{indent}else:"
            yield f"{inner}append(2)"
            yield from self._value(name, not_none(kind), inner)
        else:
            yield from self._plain(name, kind, indent)

    def _plain(self, name: str, kind: Any, indent: str) -> Iterator[str]:
        if kind is int:
            yield f"{indent}if 0 <= {name} < 64: append({name} << 1)"
            yield f"{indent}else: out += long({name})"
        elif kind is str:
            yield f"{indent}out += short[{name}] if len({name}) <= {_SHORT_CHARS_MAX} else string({name})"
        elif kind is bool:
            yield f"{indent}append(1 if {name} else 0)"
        elif kind is bytes:
            yield f"{indent}out += long(len({name}))"
            yield f"{indent}out += {name}"
        elif issubclass(kind, StrEnum):
            indexes = {symbol: _long(index) for index, symbol in enumerate(kind)}
            yield f"{indent}out += {self._called(f'indexes_{kind.__name__}', indexes)}[{name}]"
        else:
            self.of(kind)
            yield f"{indent}{_name(kind)}({name}, out)"

    def _constant(self, value: Any) -> str:
        return "None" if value is None else self._called(f"default_{len(self._names)}", value)

    def _called(self, name: str, value: Any) -> str:
        self._names[name] = value
        return name


def _name(record: type[Struct]) -> str:
    return f"write_{record.__name__}"


def _field(nth: int, field: msgspec.structs.FieldInfo) -> _Field:
    default = field.default
    if default is msgspec.NODEFAULT or isinstance(default, msgspec.Struct):
        return _Field(f"f{nth}", field.type, _NEVER, b"")
    return _Field(f"f{nth}", field.type, default, _encoded(field.type, default))


def _words_of(fields: Sequence[_Field]) -> Callable[[tuple[str, ...]], bytes]:
    return lambda words: b"".join(
        _encoded(field.type, word) for field, word in zip(fields, words, strict=True)
    )


def _encoded(kind: Any, value: Any) -> bytes:
    """A default or a word: what is encoded once."""
    if value is None or value == []:
        return b"\x00"
    if type(None) in typing.get_args(kind):
        return b"\x02" + _encoded(not_none(kind), value)
    if kind is bool:
        return b"\x01" if value else b"\x00"
    if kind is int:
        return _long(value)
    if kind is str:
        return string_bytes(value)
    return _long(
        list(kind).index(value)
    )  # an enum, or an error here and now: no default of ours is anything else
