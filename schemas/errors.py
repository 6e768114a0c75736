"""The errors that choose a policy: a shell settles these two and lets everything else crash.

``Poison``: cannot ever be processed; goes to the dead letters, the offset moves on. ``Transient``: try again, lose
nothing, reorder nothing. Read next: ``codec`` raises both.
"""

from typing import Literal

PoisonReason = Literal[
    "undecodable", "tombstone", "missing_field", "bad_field", "key_mismatch", "schema_version"
]


class TokentrailError(Exception):
    """Base of the errors that are ours; the message says what to do."""


class Poison(TokentrailError):
    """A record that no later try can process.

    Args:
        reason: why, as it stands in the dead letter.
        detail: one line for an operator.
    """

    def __init__(self, reason: PoisonReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: PoisonReason = reason
        self.detail = detail


class Transient(TokentrailError):
    """A failure that passes: broker or warehouse away, schema not seen yet."""


class SchemaUnknown(Transient):
    """The writer's schema has not reached this process yet; look in the schemas topic.

    Args:
        fingerprint: the CRC-64-AVRO fingerprint as 16 hex digits, as it stands in the record.
    """

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"schema {fingerprint} is not known here yet; it is read from the schemas topic")
        self.fingerprint = fingerprint


class IllegalMove(TokentrailError):
    """A state machine was asked for a move that its table does not have; nothing was changed."""
