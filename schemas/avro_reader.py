"""Avro's binary encoding back into our own structs, by a function that is written for each of them: ``avro_writer``'s other half.

fastavro makes a dict of every field, which ``msgspec.convert`` then proves field by field (13 µs for a delta). Most fields
hold their default, which is one zero byte: runs of them are passed over, and the struct is made of the others. As in the
writer there is one straight function for each type, made once as source text from its fields.

Only what our own writer writes is read here. Everything else raises something (an index, a length, a value, half a
character), and the caller leaves the bytes to fastavro, which has the last word on what is poison, and why: so this file may
refuse what is good, and must never take what is not. A property test holds that. A text that ends behind the bytes is not
looked at where it stands: its end is then a place behind them all, so that nothing is read any more and the end does not fit.
Pure. Before: ``avro``. After: ``codec``.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from schemas.avro_types import given_words, not_none
from schemas.events import Struct

Read = Callable[[bytes, int], tuple[Any, int]]
"""Bytes and a place in them → the value there and the place behind it."""
Field = msgspec.structs.FieldInfo
_LAST = 1 << 7
_LONG_OR_ODD = 0x81
"""Bits of a first byte that say: more bytes follow, or the number is negative."""
_HIGH_BITS_MAX = 7 * 6
"""A long of ten groups may not fit 64 bits: no time stamp or count of ours has so many."""
_RUN = 5
"""So many fields that hold their defaults are worth a question of their own."""
_KNOWN_MAX = 1024
_high: dict[bytes, int] = {}
"""The upper five groups of time stamps: the same for a second."""


class Unusual(ValueError):
    """Our writer writes nothing like it."""


@cache
def reader_of(record: type[Struct]) -> Callable[[bytes, int], Any]:
    """A decoder for a struct type: bytes and where the Avro body begins in them → value. Made once in a process.

    It raises whatever the bytes lead it into (``Unusual``, IndexError, UnicodeDecodeError), and never returns another value
    than fastavro and ``msgspec.convert`` would.
    """
    read = _Readers().of(record)

    def decode(data: bytes, at: int) -> Any:
        value, end = read(data, at)
        if end != len(data):
            raise Unusual("it does not end with the bytes")
        return value

    return decode


def unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A long before zigzag. Of one to four groups, or of eight: a count, a span of time, a time stamp."""
    first = data[at]
    if first < _LAST:
        return first, at + 1
    second = data[at + 1]
    if second < _LAST:
        return first & 0x7F | second << 7, at + 2
    third = data[at + 2]
    if third < _LAST:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, at + 3
    low = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    fourth = data[at + 3]
    if fourth < _LAST:
        return low | fourth << 21, at + 4
    high = _high.get(data[at + 3 : at + 8])
    if high is not None:
        return low | high, at + 8
    value, end = _groups(data, at + 3)
    value <<= 21
    if end == at + 8:
        _remember(_high, data[at + 3 : end], value)
    return low | value, end


def _groups(data: bytes, at: int) -> tuple[int, int]:
    """One to six groups of seven bits, low ones first."""
    value = 0
    for shift in range(0, _HIGH_BITS_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _LAST:
            return value, at
    raise Unusual("a long of more than nine groups")


def _long(data: bytes, at: int) -> tuple[int, int]:
    value, at = unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = unsigned(data, at)
    if size & 1:
        raise Unusual("a negative length")
    end = at + (size >> 1)
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    return str(value, "utf-8"), at


def _unusual(what: str) -> typing.Never:
    raise Unusual(what)


class _Readers:
    """Makes the functions: of a record and of the records in it, which share one namespace."""

    def __init__(self) -> None:
        self._made: dict[type[Struct], Read] = {}
        self._names: dict[str, Any] = {
            "unsigned": unsigned,
            "long": _long,
            "string": _string,
            "raw": _bytes,
            "unusual": _unusual,
        }

    def of(self, record: type[Struct]) -> Read:
        """The function that reads a value of this type."""
        if record not in self._made:
            self._run(self._function(record))
            self._made[record] = self._names[_name(record)]
        return self._made[record]

    def _run(self, source: Iterable[str]) -> None:
        exec(compile("\n".join(source), "<avro reader>", "exec"), self._names)  # noqa: S102 - our own text

    def _function(self, record: type[Struct]) -> Iterator[str]:
        self._names[record.__name__] = record
        fields = msgspec.structs.fields(record)
        count = given_words(fields)
        yield f"def {_name(record)}(data, at):"
        if count > 1:  # who it is about: the same for all that a generation says
            yield from self._words(record, fields[:count])
        else:
            count = 0
            yield "    values = {}"
        yield from self._fields(fields[count:], "    ")
        yield f"    return {record.__name__}(**values), at"

    def _words(self, record: type[Struct], fields: Sequence[Field]) -> Iterator[str]:
        self._names[f"words_{record.__name__}"] = self._words_of(record, fields)
        yield "    end = at"
        for field in fields:
            if field.type is str:
                yield "    size = data[end]"
                yield f"    end = raw(data, end)[1] if size & {_LONG_OR_ODD} else end + 1 + (size >> 1)"
            else:
                yield "    end += 1"
        yield f"    values = words_{record.__name__}(data, at, end)"
        yield "    at = end"

    def _words_of(
        self, record: type[Struct], fields: Sequence[Field]
    ) -> Callable[[bytes, int, int], dict[str, Any]]:
        name = f"new_words_{record.__name__}"
        source = [f"def {name}(data, at):", "    values = {}"]
        for field in fields:
            source += self._value("value", field.type, "    ")
            source += [f"    values[{field.name!r}] = value"]
        self._run([*source, "    return values, at"])
        read: Read = self._names[name]
        known: dict[bytes, dict[str, Any]] = {}

        def words(data: bytes, at: int, end: int) -> dict[str, Any]:
            values = known.get(data[at:end])
            if values is None:
                values, read_to = read(data, at)
                if read_to != end or end > len(data):
                    raise Unusual("words that end elsewhere")
                _remember(known, data[at:end], values)
            return values.copy()

        return words

    def _fields(self, fields: Sequence[Field], indent: str) -> Iterator[str]:
        """Fields in their order; those that may be zero in short runs, asked whether they all are."""
        at = 0
        while at < len(fields):
            run = 0
            while run < _RUN and at + run < len(fields) and _zero_is_default(fields[at + run]):
                run += 1
            if run <= 1:
                yield from self._field(fields[at], indent)
                at += 1
                continue
            yield f"{indent}if data.startswith({bytes(run)!r}, at): at += {run}"
            yield f"{indent}else:"
            for field in fields[at : at + run]:
                yield from self._field(field, indent + "    ")
            at += run

    def _field(self, field: Field, indent: str) -> Iterator[str]:
        kind, inner = field.type, indent
        if _zero_is_default(field):
            yield f"{indent}if not data[at]: at += 1"
            yield f"{indent}else:"
            inner = indent + "    "
            if field.default is None:
                yield f"{inner}if data[at] != 2: unusual('a branch that is not there')"
                yield f"{inner}at += 1"
                kind = not_none(kind)
        yield from self._value("value", kind, inner)
        yield f"{inner}values[{field.name!r}] = value"

    def _value(self, name: str, kind: Any, indent: str) -> Iterator[str]:
        inner = indent + "    "
        if typing.get_origin(kind) is list:
            yield f"{indent}{name} = []"
            yield f"{indent}while True:"
            yield f"{inner}count, at = unsigned(data, at)"
            yield f"{inner}if not count: break"
            yield f"{inner}if count & 1: unusual('a block with its size before it')"
            yield f"{inner}for _ in range(count >> 1):"
            yield from self._value(f"{name}_item", typing.get_args(kind)[0], inner + "    ")
            yield f"{inner}    {name}.append({name}_item)"
        elif typing.get_args(kind):
            yield f"{indent}{name} = data[at]"
            yield f"{indent}at += 1"
            yield f"{indent}if {name} == 0: {name} = None"
            yield f"{indent}elif {name} != 2: unusual('a branch that is not there')"
            yield f"{indent}else:"
            yield from self._value(name, not_none(kind), inner)
        else:
            yield from self._plain(name, kind, indent)

    def _plain(self, name: str, kind: Any, indent: str) -> Iterator[str]:
        if kind is bytes:
            yield f"{indent}{name}, at = raw(data, at)"
            return
        if kind not in (int, str, bool) and not issubclass(kind, StrEnum):
            self.of(kind)
            yield f"{indent}{name}, at = {_name(kind)}(data, at)"
            return
        yield f"{indent}{name} = data[at]"
        if kind is int:
            yield f"{indent}if {name} & {_LONG_OR_ODD}: {name}, at = long(data, at)"
            yield f"{indent}else: {name}, at = {name} >> 1, at + 1"
        elif kind is str:
            yield f"{indent}if {name} & {_LONG_OR_ODD}: {name}, at = string(data, at)"
            yield f"{indent}else:"
            yield f"{indent}    end = at + 1 + ({name} >> 1)"
            yield f"{indent}    {name}, at = str(data[at + 1 : end], 'utf-8'), end"
        elif kind is bool:
            yield f"{indent}if {name} > 1: unusual('a bool that is neither')"
            yield f"{indent}{name}, at = {name} == 1, at + 1"
        else:
            self._names[f"symbols_{kind.__name__}"] = tuple(kind)
            yield f"{indent}if {name} & {_LONG_OR_ODD}: unusual('no symbol has this index')"
            yield f"{indent}{name}, at = symbols_{kind.__name__}[{name} >> 1], at + 1"


def _name(record: type[Struct]) -> str:
    return f"read_{record.__name__}"


def _zero_is_default(field: Field) -> bool:
    """Whether a field that is left out of the struct's arguments is what a zero byte would be read as."""
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(field.default_factory() == [])
    kind, default = field.type, field.default
    if default is msgspec.NODEFAULT or type(None) in typing.get_args(kind):
        return default is None
    if kind in (int, str, bytes, bool):
        return bool(default == kind())
    return bool(isinstance(kind, type) and issubclass(kind, StrEnum) and default is next(iter(kind)))


def _remember(known: dict[bytes, Any], data: bytes, value: Any) -> None:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[data] = value
