"""The signing secrets: which one signs the ids of a generation, and which ones are good no more.

A generation's ids are signed with the secret that was in force when it started; the time in its UUIDv7 says when that
was, so every edge with the same configuration says the same. A secret that was taken out, or whose ``until`` has passed,
is retired: what it signed is refused (401). Ids that are given out for such a generation from then on are signed by the
oldest secret that is still good, so that they work. Pure. Before: ``cursor``. After: ``settings``.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, model_validator

from schemas.cursor import Cursor, sign, verify
from schemas.ids import start_ms


class SigningSecret(BaseModel):
    """One secret; a bare text is one without a beginning and an end."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secret: SecretStr
    since: AwareDatetime | None = Field(
        None,
        description="signs what starts from then on; when every edge is sure to know it, so in the future",
    )
    until: AwareDatetime | None = Field(
        None, description="retired then: its ids are refused; at the earliest when its last events are gone"
    )

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"secret": value} if isinstance(value, str | SecretStr) else value

    @model_validator(mode="after")
    def _ends_after_its_beginning(self) -> Self:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise ValueError("a signing secret's `until` lies behind its `since`")
        return self


def check_secrets(secrets: Sequence[SigningSecret]) -> None:
    """Newest first, one of them in force at every instant from now on; ValueError says what does not hold."""
    if secrets and secrets[0].until is not None:
        raise ValueError("the newest signing secret has no `until`: something must sign what starts then")
    for newer, older in pairwise(secrets):
        if newer.since is None:
            raise ValueError(
                "each signing secret but the oldest says `since` when it signs; the newest comes first"
            )
        if older.since is not None and older.since >= newer.since:
            raise ValueError("signing secrets stand newest first, by their `since`")


class Signing:
    """The secrets of a process."""

    def __init__(self, secrets: Sequence[SigningSecret]) -> None:
        self._secrets = [
            (s.secret.get_secret_value().encode(), _us(s.since, 0), _us(s.until, None)) for s in secrets
        ]

    def secret_of(self, generation_id: str, now_us: int) -> bytes:
        """The secret that signs the ids of a generation; ``now_us`` decides who is retired."""
        started_us = start_ms(generation_id) * 1000
        good = [(secret, since) for secret, since, until in self._secrets if until is None or now_us < until]
        in_force = (secret for secret, since in good if since is None or since <= started_us)
        return next(in_force, good[-1][0])

    def verify(self, generation_id: str, cursor: Cursor, key_id: str, now_us: int) -> bool:
        """Whether a cursor's signature is good, compared in constant time."""
        return verify([self.secret_of(generation_id, now_us)], generation_id, cursor, key_id)

    def sign(self, generation_id: str, seq: int, key_id: str, now_us: int) -> str:
        """The signature of an id."""
        return sign(self.secret_of(generation_id, now_us), generation_id, seq, key_id)


def _us(instant: AwareDatetime | None, none: int | None) -> int | None:
    return none if instant is None else round(instant.timestamp() * 1_000_000)
