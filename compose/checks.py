"""What the doctor's checks have in common: a verdict, what is red, what was not made.

Before this file: ``doctor``. After it: ``doctor_streams``.
"""

from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import TokentrailError


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    RED = "red"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table. ``remedy`` is empty where all is well."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Red(TokentrailError):
    """A check did not hold: what was found, and what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


class Skipped(TokentrailError):
    """A check could not be made."""
