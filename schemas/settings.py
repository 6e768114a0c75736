"""Settings: one frozen object per process, the only reader of the environment.

``tokentrail.toml`` < environment (``TOKENTRAIL_SECTION__FIELD``) < arguments. Every field has a unit in its name, a
default and a reason; unknown keys are errors; the relations between limits are asserted here, at start. Every process
takes the same class, since the relations cross processes (a heartbeat of the edge feeds the finder of the pipeline).
Tests and the demo run the times of lease, finder and grace at a twentieth: the asserted relations hold there too.

Before: the environment and the file. After: each process's shell.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schemas.limits import Limit
from schemas.providers import ApiKey, Provider, Route, Section, check_keys, check_routes
from schemas.runtime import (
    Admission,
    Breaker,
    Cancel,
    Disconnect,
    Hedge,
    Retry,
    Stream,
    Timeout,
    check_times,
    check_times_of_routes,
)
from schemas.signing import SigningSecret, check_secrets
from schemas.stopping import LAST_WORDS_S, MARGIN_S

__all__ = ["ApiKey", "Limit", "Provider", "Route", "Section", "Settings"]

_MIB = 1 << 20
_PREFIX = "TOKENTRAIL_"
_OTHER_NAMES = frozenset({"api_key", "cache", "test_clickhouse_url"})
"""Names with our prefix that are no setting of a process: a caller's key for the command line, the folder of downloads,
the server that the tests take instead of the embedded one."""


Origin = Annotated[str, StringConstraints(pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[^/\s]+)$")]


class Kafka(Section):
    """How every process reaches the broker (notes: measured against Kafka 4.4)."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="host:port, comma separated")
    request_timeout_ms: int = Field(
        10_000, description="must exceed the longest leaderless window (3-4 s tuned)"
    )
    metadata_max_age_ms: int = Field(5_000, description="how soon a moved leader is found")


class ClickHouse(Section):
    """The warehouse, always over HTTP: the embedded engine and a real server differ by this URL only."""

    url: str = Field("", description="http(s)://host:port; empty: this process has no warehouse")
    user: str = Field("default")
    password: SecretStr = Field(SecretStr(""))
    database: str = Field("default", description="where the tables are")
    replicated: bool = Field(
        False, description="a cluster: tables are made with Replicated engines; what exists is not changed"
    )


class Edge(Section):
    """This edge."""

    id: str = Field("edge-1", description="stands on every record; unique per running process")
    host: str = Field("127.0.0.1", description="loopback unless told: a gateway is put behind a proxy")
    port: int = Field(8080, ge=0, le=65535)
    cors_origins: tuple[Origin, ...] = Field(
        ("*",), description="whose pages may call /v1/, as scheme://host[:port]; none of them sends cookies"
    )
    drain_s: float = Field(
        10, ge=0, description="on a stop, running generations have so long to end by themselves"
    )


class Log(Section):
    """Publishing."""

    delivery_s: float = Field(
        20, gt=0, description="after this un-acked time a client is told log_unavailable"
    )
    start_ack_s: float = Field(10, gt=0, description="message_start must be acknowledged within it, else 503")
    partitions_per_edge: int = Field(
        2, ge=0, description="ids are drawn into so many partitions; 0: all of them"
    )
    gather_us: int = Field(2_500, ge=0, description="records of this time share a produce request under load")


class Resume(Section):
    """How far back, and how skewed the clocks may be."""

    window_days: int = Field(6, gt=0)
    skew_s: int = Field(
        60, gt=0, description="message_start lies within it of the UUIDv7's time, either side"
    )
    ticket_s: float = Field(60, gt=0, description="a ticket is good so long for a first connect")


class Pipeline(Section):
    """The workers."""

    orphan_after_s: float = Field(60, gt=0)
    commit_interval_s: float = Field(1, gt=0)
    open_generations_max: int = Field(200_000, gt=0, description="memory: about 2 KiB each")
    stray_records_max: int = Field(
        10_000, gt=0, description="records kept aside until their message_start comes"
    )
    closed_ids_max: int = Field(
        200_000, gt=0, description="ids closed lately, to tell late records from strays"
    )
    schema_wait_s: float = Field(
        30, gt=0, description="an unknown fingerprint is waited for, then a dead letter"
    )
    data_dir: Path = Field(
        Path(".tokentrail/faust"), description="Faust wants a folder; nothing of ours is in it"
    )


class Sink(Section):
    """The batches."""

    batch_rows: int = Field(50_000, gt=0)
    batch_bytes: int = Field(16 * _MIB, gt=0)
    batch_age_s: float = Field(1, gt=0, description="so that an idle system is fresh too")


class Metrics(Section):
    """Where workers and sinks tell their figures to Prometheus; an edge does at its own address, under ``/metrics``."""

    host: str = Field("127.0.0.1", description="whoever reaches it reads them: no key is asked for")
    pipeline_port: int | None = Field(
        None, ge=0, le=65535, description="of a worker, each its own; None: nobody is told"
    )
    sinks_port: int | None = Field(
        None, ge=0, le=65535, description="of a sink process, each its own; None: nobody is told"
    )


class Stop(Section):
    """How long a process may take to end when it is asked to. What it leaves undone the next start does again."""

    settle_s: float = Field(
        10, gt=0, description="what was read is stored and committed in it: a broker's fail-over takes 3-4 s"
    )
    close_s: float = Field(
        3, ge=3, description="then clients leave: so long they take to give up a broker that is gone"
    )


class Secrets(Section):
    """Signing secrets, newest first; old ones are kept as long as events are."""

    cursor: tuple[SigningSecret, ...] = Field(
        (SigningSecret(secret=SecretStr("tokentrail-development-secret")),),
        min_length=1,
        description="the first whose `since` has come at a generation's start signs its ids",
    )

    @model_validator(mode="after")
    def _one_in_force(self) -> Self:
        check_secrets(self.cursor)
        return self


class Settings(BaseSettings):
    """Everything a process is told."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # a misspelt secret's value must not end in a log
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        toml_file="tokentrail.toml",
    )

    kafka: Kafka = Kafka()
    clickhouse: ClickHouse = ClickHouse()
    edge: Edge = Edge()
    log: Log = Log()
    stream: Stream = Stream()
    timeout: Timeout = Timeout()
    admission: Admission = Admission()
    disconnect: Disconnect = Disconnect()
    cancel: Cancel = Cancel()
    retry: Retry = Retry()
    breaker: Breaker = Breaker()
    hedge: Hedge = Hedge()
    resume: Resume = Resume()
    pipeline: Pipeline = Pipeline()
    sink: Sink = Sink()
    metrics: Metrics = Metrics()
    stop: Stop = Stop()
    limit: Limit = Limit()
    secrets: Secrets = Secrets()
    providers: dict[str, Provider] = {}
    models: dict[str, tuple[Route, ...]] = {}
    default_route: tuple[Route, ...] = Field(
        (), description="serves every model that `models` does not name, in each dialect by its providers"
    )
    keys: tuple[ApiKey, ...] = ()
    price_files: tuple[Path, ...] = ()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments over environment over file; no .env, no secrets folder: one place each."""
        del dotenv_settings, file_secret_settings
        _refuse_unknown_names(os.environ, settings_cls)
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def worker_stop_s(self) -> float:
        """The deadline of a pipeline worker's or a sink process's stop."""
        return self.stop.settle_s + self.stop.close_s + MARGIN_S

    @property
    def edge_stop_s(self) -> float:
        """The deadline of an edge's stop."""
        wind_up_s = self.edge.drain_s + max(self.log.delivery_s, LAST_WORDS_S)
        return wind_up_s + self.stop.close_s + MARGIN_S

    @model_validator(mode="after")
    def _relations(self) -> Self:
        """The limits that only make sense together."""
        half_orphan_s = self.pipeline.orphan_after_s / 2
        times = self.stream, self.timeout, self.hedge, half_orphan_s
        named = self.models | {"the default route": self.default_route}
        broken = [*check_times(*times), *check_times_of_routes(named, *times)]
        if self.log.delivery_s >= half_orphan_s:
            broken.append("log.delivery_s < pipeline.orphan_after_s / 2")
        if broken:
            raise ValueError(f"these settings contradict one another: {'; '.join(broken)} must hold")
        check_routes(self.providers, self.models, self.default_route)
        check_keys(self.keys)
        return self


def _refuse_unknown_names(names: Iterable[str], settings_cls: type[BaseSettings]) -> None:
    """The environment source only looks for fields that it knows, so a misspelt section would pass unseen."""
    known = settings_cls.model_fields.keys() | _OTHER_NAMES
    ours = (name for name in names if name.upper().startswith(_PREFIX))
    unknown = [name for name in ours if name[len(_PREFIX) :].lower().split("__", 1)[0] not in known]
    if unknown:
        raise ValueError(f"no such setting in the environment: {', '.join(sorted(unknown))}")
