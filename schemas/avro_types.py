"""What a struct's schema, and the two functions that are written to write and to read it, all ask of its fields.

Pure. Before: ``events``. After: ``avro``, ``avro_writer``, ``avro_reader``.
"""

import typing
from collections.abc import Sequence
from typing import Any

import msgspec


def not_none(kind: Any) -> Any:
    """The T of ``T | None``."""
    (some,) = (argument for argument in typing.get_args(kind) if argument is not type(None))
    return some


def given_words(fields: Sequence[msgspec.structs.FieldInfo]) -> int:
    """How many fields a struct begins with that are words and have no default: who it is about."""
    return next((nth for nth, field in enumerate(fields) if not _is_given_word(field)), len(fields))


def _is_given_word(field: msgspec.structs.FieldInfo) -> bool:
    return field.required and isinstance(field.type, type) and issubclass(field.type, str)
