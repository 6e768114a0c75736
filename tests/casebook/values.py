"""How a casebook vector's values are read: files, forms, long strings, numbers, instants, ranges.

Numbers with a fraction are Decimal from the first byte on: a vector's money must not pass through a float.
"""

import importlib
import importlib.util
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = "casebook/1"


class Case(NamedTuple):
    """One test: a vector and, where the form has framings, the one to play it in."""

    vector: dict[str, Any]
    framing: str | None = None

    @property
    def name(self) -> str:
        """The test's id."""
        return f"{self.vector['id']}-{self.framing}" if self.framing else str(self.vector["id"])


def load_vectors(folder: Path) -> list[dict[str, Any]]:
    """The vectors of every ``*.json`` in the folder; a folder or file that is no casebook is an error, not no test."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no *.json: --casebook wants a folder of vectors")
    vectors: list[dict[str, Any]] = []
    for path in paths:
        book = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        if not isinstance(book, dict) or book.get("format") != FORMAT:
            raise ValueError(f"{path} is not of format {FORMAT}")
        vectors.extend(book["vectors"])
    by_id = {vector["id"]: vector for vector in vectors}
    for vector in vectors:
        if twin := vector.get("expect", {}).get("same_body_as"):
            vector["twins"] = [by_id[twin]]
    return vectors


def cases_of(vectors: list[dict[str, Any]], forms: frozenset[str] = frozenset()) -> list[Case]:
    """One case per vector and framing; ``forms`` empty: of every form."""
    return [
        Case(vector, framing)
        for vector in vectors
        if not forms or vector["form"] in forms
        for framing in vector.get("framings", [None])
    ]


def form_module(form: str) -> Any:
    """The module that plays this form, or None where there is none yet."""
    name = f"{__package__}.form_{form}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def expand_text(value: Any) -> str:
    """A text as it stands, or the long one that ``{head, unit, times, tail}`` describes."""
    if isinstance(value, str):
        return value
    return str(value.get("head", "")) + str(value["unit"]) * int(value["times"]) + str(value.get("tail", ""))


def instant_us(text: str) -> int:
    """Unix microseconds of an ISO 8601 instant."""
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def within(value: Any, wanted: Any) -> bool:
    """Whether a number is the wanted one, or lies in the wanted ``[min, max]``, ends included."""
    if isinstance(wanted, list):
        low, high = wanted
        return value is not None and bool(low <= value <= high)
    return bool(value == wanted)


def check_all(seen, expect, checks, what="expect"):
    """Every key of a part of ``expect``, each by its own check."""
    unknown = expect.keys() - checks.keys()
    assert not unknown, f"{what}: no check for {sorted(unknown)}"
    for key, wanted in expect.items():
        checks[key](seen, wanted)
