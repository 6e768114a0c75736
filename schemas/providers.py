"""Who streams tokens, which model goes where, and whose keys may ask: the sections of the settings that name things.

A model's routes hold providers of one dialect, since nothing is translated; the default route may hold one set for each
dialect, of which a call takes those of its own. Before: ``failures`` names the dialects. After: ``settings``.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from schemas.failures import DIALECTS


class Section(BaseModel):
    """A frozen section; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Provider(Section):
    """Somebody who streams tokens. ``base_url`` is what the dialect's own SDK takes as such."""

    dialect: str = Field("openai.chat")
    base_url: str
    api_key: SecretStr | None = None
    usage_convention: str = Field("standard", pattern="^(standard|additive)$")
    generations: int | None = Field(
        None, gt=0, description="first sent here at once by one edge; None: no limit"
    )
    starts_per_s: float | None = Field(
        None, gt=0, le=1_000_000, description="of generations, by one edge; None: no limit"
    )

    @model_validator(mode="after")
    def _of_its_dialect(self) -> Self:
        if self.dialect not in DIALECTS:
            raise ValueError(f"no dialect {self.dialect!r}: it is one of {', '.join(DIALECTS)}")
        if self.dialect == "anthropic.messages" and self.base_url.rstrip("/").endswith("/v1"):
            raise ValueError(
                "the base_url of an anthropic.messages provider ends before /v1, as its SDK takes it"
            )
        return self


class Route(Section):
    """One way to serve a model: a provider and, if it differs, the model's name there.

    Routes are tried in order. Those of the same ``rank`` share the traffic of it by ``weight``; without a rank a route's
    is its position. A model that thinks for minutes, or one that answers at once, may have times of its own.
    """

    provider: str
    model: str | None = None
    rank: int | None = Field(None, ge=0)
    weight: float = Field(1, ge=0, allow_inf_nan=False)
    queue_s: float | None = Field(None, gt=0, description="here, instead of timeout.queue_s")
    ttft_timeout_s: float | None = Field(None, gt=0, description="here, instead of stream.ttft_timeout_s")
    stall_timeout_s: float | None = Field(None, gt=0, description="here, instead of stream.stall_timeout_s")
    decode_s: float | None = Field(None, gt=0, description="here, instead of timeout.decode_s")

    def times(self) -> dict[str, float]:
        """Its own times, by their names in the sections that they stand in for."""
        names = ("queue_s", "ttft_timeout_s", "stall_timeout_s", "decode_s")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ApiKey(Section):
    """A key is stored as the SHA-256 of its text, in hex. Two texts of one id are one key: its streams are the id's."""

    id: str
    tenant: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    name: str = ""
    roles: tuple[str, ...] = ("caller",)
    allow: frozenset[Literal["hedge", "shrink", "repair", "priority"]] = Field(
        frozenset(),
        description="what may be done to this key's calls before anything was delivered; priority: they may go first",
    )


def check_routes(
    providers: Mapping[str, Provider], models: Mapping[str, tuple[Route, ...]], default: tuple[Route, ...]
) -> None:
    """Every route leads to a provider, and those of one model speak one dialect; ValueError says which does not."""
    named = {f"model {name!r}": routes for name, routes in models.items()} | {"default_route": default}
    for who, routes in named.items():
        for route in routes:
            if route.provider not in providers:
                raise ValueError(f"{who} is routed to {route.provider!r}, which is not in [providers]")
        spoken = {providers[route.provider].dialect for route in routes}
        if len(spoken) > 1 and routes is not default:
            raise ValueError(f"{who} is routed to providers of several dialects: {', '.join(sorted(spoken))}")


def check_keys(keys: Iterable[ApiKey]) -> None:
    """An id belongs to one tenant, and a text to one id; ValueError says which does not."""
    tenants: dict[str, str] = {}
    owners: dict[str, str] = {}
    for key in keys:
        if tenants.setdefault(key.id, key.tenant) != key.tenant:
            raise ValueError(f"key {key.id!r} is of two tenants: {tenants[key.id]} and {key.tenant}")
        if owners.setdefault(key.sha256, key.id) != key.id:
            raise ValueError(f"the keys {owners[key.sha256]!r} and {key.id!r} have the same text")
