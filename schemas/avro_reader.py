"""Avro's binary encoding back into our own structs: the reading side of ``avro_writer``, for records of our own schemas.

fastavro makes a dict of every field, which ``msgspec.convert`` then proves field by field (13 µs for a delta). Most fields
hold their default, which is one zero byte: those are passed over, and the struct is made of the others (6 µs).

Only what our own writer writes is read here. Everything else raises something (an index, a length, a value, half a
character), and the caller leaves the bytes to fastavro, which has the last word on what is poison, and why: so this file may
refuse what is good, and must never take what is not. A property test holds that. Pure. Before: ``avro``. After: ``codec``.
"""

import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from schemas.events import Struct

Read = Callable[[bytes, int], tuple[Any, int]]
"""Bytes and a place in them → the value there and the place behind it."""
_SECOND = 2  # the second branch of ["null", T], as it is encoded
_LAST = 1 << 7
_HIGH_BITS_MAX = 7 * 6
"""A long of ten groups may not fit 64 bits: no time stamp or count of ours has so many."""
_KNOWN_MAX = 1024
_high: dict[bytes, int] = {}
"""The upper five groups of time stamps: the same for a second."""


class Unusual(ValueError):
    """Our writer writes nothing like it."""


def reader_of(record: type[Struct]) -> Callable[[bytes, int], Any]:
    """A decoder for a struct type: bytes and where the Avro body begins in them → value.

    It raises whatever the bytes lead it into (``Unusual``, IndexError, UnicodeDecodeError, …), never returns another value
    than fastavro and ``msgspec.convert`` would.
    """
    read = _record(record, {})

    def decode(data: bytes, at: int) -> Any:
        value, end = read(data, at)
        if end != len(data):
            raise Unusual("it does not end with the bytes")
        return value

    return decode


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A long before zigzag. Of one to three groups, or of eight: a count, a span of time, a time stamp."""
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


def _remember(known: dict[bytes, Any], data: bytes, value: Any) -> None:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[data] = value


def _long(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Where a string's bytes begin and end."""
    size, at = _unsigned(data, at)
    end = at + (size >> 1)
    if size & 1 or end > len(data):
        raise Unusual("a length that cannot be")
    return at, end


def _string(data: bytes, at: int) -> tuple[str, int]:
    size = data[at]
    if size < _LAST and not size & 1:
        at += 1
        end = at + (size >> 1)
        if end > len(data):
            raise Unusual("a length that cannot be")
    else:
        at, end = _span(data, at)
    return str(data[at:end], "utf-8"), end


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    at, end = _span(data, at)
    return data[at:end], end


def _bool(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise Unusual("a bool that is neither")
    return data[at] == 1, at + 1


_PLAIN: dict[Any, Read] = {str: _string, int: _long, bool: _bool, bytes: _bytes}


def _type(kind: Any, made: dict[Any, Read]) -> Read:
    if kind in _PLAIN:
        return _PLAIN[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return _array(_type(arguments[0], made))
    if arguments:
        return _optional(_type(_not_none(kind), made))
    if issubclass(kind, StrEnum):
        return _enum(kind)
    return made.get(kind) or _record(kind, made)


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            size, at = _unsigned(data, at)
            if size == 0:
                return values, at
            if size & 1:
                raise Unusual("a block with its size before it")
            for _ in range(size >> 1):
                value, at = item(data, at)
                values.append(value)

    return read


def _optional(inner: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch = data[at]
        if branch == _SECOND:
            return inner(data, at + 1)
        if branch:
            raise Unusual("a branch that is not there")
        return None, at + 1

    return read


def _enum(kind: type[StrEnum]) -> Read:
    symbols = list(kind)

    def read(data: bytes, at: int) -> tuple[StrEnum, int]:
        index = data[at]
        if index & 1 or index >= _LAST:
            raise Unusual("no symbol has this index")
        return symbols[index >> 1], at + 1

    return read


def _record(record: type[Struct], made: dict[Any, Read]) -> Read:
    steps: list[tuple[str, Read, bool, bool, bytes]] = []
    names: list[
        str
    ] = []  # of the strings that a record begins with: whose it is, the same for each of a generation
    known: dict[bytes, dict[str, Any]] = {}

    def read(data: bytes, at: int) -> tuple[Struct, int]:
        if names:
            values, at = _leading(data, at, names, known)
        else:
            values = {}
        for name, of_type, optional, zero_is_default, rest in steps:
            byte = data[at]
            if zero_is_default and byte == 0:
                if rest and data.startswith(rest, at):
                    return record(**values), at + len(rest)
                at += 1
                continue
            if optional:
                if byte != _SECOND:
                    raise Unusual("a branch that is not there")
                at += 1
            values[name], at = of_type(data, at)
        return record(**values), at

    made[record] = read
    fields = list(msgspec.structs.fields(record))
    while len(names) < len(fields) and fields[len(names)].type is str and fields[len(names)].required:
        names.append(fields[len(names)].name)
    steps.extend(_steps(fields[len(names) :], made))
    return read


def _leading(
    data: bytes, at: int, names: list[str], known: dict[bytes, dict[str, Any]]
) -> tuple[dict[str, Any], int]:
    """The strings that stand first, by name."""
    end = at
    for _ in names:
        size = data[end]
        end = end + 1 + (size >> 1) if size < _LAST and not size & 1 else _span(data, end)[1]
    values = known.get(data[at:end])
    if values is None:
        values, place = {}, at
        for name in names:
            values[name], place = _string(data, place)
        _remember(known, data[at:end], values)
    return values.copy(), end


def _steps(
    fields: list[msgspec.structs.FieldInfo], made: dict[Any, Read]
) -> list[tuple[str, Read, bool, bool, bytes]]:
    """For each field: name, how its value is read, whether null stands for none, whether zero is its default, the rest.

    The rest is what stands there where this field and all behind it hold their default.
    """
    steps: list[tuple[str, Read, bool, bool, bytes]] = []
    zeros: bytes | None = b""
    for field in reversed(fields):
        of_type = _type(field.type, made)
        zero_is_default = _zero_is_default(field, of_type)
        zeros = zeros + b"\0" if zero_is_default and zeros is not None else None
        optional = zero_is_default and field.default is None
        inner = _type(_not_none(field.type), made) if optional else of_type
        steps.append((field.name, inner, optional, zero_is_default, zeros or b""))
    return steps[::-1]


def _not_none(kind: Any) -> Any:
    (inner,) = (argument for argument in typing.get_args(kind) if argument is not type(None))
    return inner


def _zero_is_default(field: msgspec.structs.FieldInfo, read: Read) -> bool:
    """Whether a field that is left out of the struct's arguments is what a zero byte would be read as."""
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        default = field.default
    else:
        return False
    try:
        value, end = read(b"\0", 0)
    except IndexError:  # a record of several fields
        return False
    return bool(value == default and type(value) is type(default) and end == 1)
