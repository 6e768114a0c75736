"""What processes a stack consists of: commands, ports, environment, readiness. Decides; starts nothing.

    base        kafka · clickhouse · the provider     each embedded one only where none is configured
    then        topics, migrations                    (``run``)
    workers     sinks · pipeline · edge-1 · edge-2

A stop goes the other way: edges first, so that nothing is published any more, the log last. Every child gets its
configuration by environment on top of the ``tokentrail.toml`` of its working directory.
Before this file: ``config``, ``state``. After it: ``run``.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Literal, NamedTuple

from compose.config import SIMULATED, simulator_base_url
from compose.embedded import model, simulator
from compose.embedded.clickhouse.process import STOP_TIMEOUT_S
from compose.embedded.clickhouse.process import command as clickhouse_command
from compose.embedded.kafka import STOP_GRACE_S, KafkaOptions, PreparedKafka, default_cache_dir
from compose.readiness import Joined, answers
from compose.state import Folder
from compose.supervisor import Service
from schemas.settings import Settings
from schemas.stopping import MARGIN_S, in_thread
from schemas.topics import BILLING_GROUP, FOLD_GROUP, sink_group

HOST = "127.0.0.1"
EDGE_PORT = 8080
SINK_TABLES = ("events", "attempts", "generations", "ledger", "dead_letters")
SINK_GROUPS = tuple(sink_group(table) for table in SINK_TABLES)
PIPELINE_GROUPS = (FOLD_GROUP, BILLING_GROUP)
PRICES = Path(__file__).with_name("prices.toml")
SIMULATOR_MODEL = "sim-stall"
"""The simulator's model that shows most: it falls silent once."""


class RealProvider(NamedTuple):
    """A provider that is there as soon as ``key`` is in the environment."""

    key: str
    dialect: str
    base_url: str


REAL_PROVIDERS = {
    "openai": RealProvider("OPENAI_API_KEY", "openai.chat", "https://api.openai.com/v1"),
    "openai_responses": RealProvider("OPENAI_API_KEY", "openai.responses", "https://api.openai.com/v1"),
    "anthropic": RealProvider("ANTHROPIC_API_KEY", "anthropic.messages", "https://api.anthropic.com"),
}


class Tier(IntEnum):
    """The order of stopping, from the highest down."""

    LOG = 0
    BASE = 1
    SINKS = 2
    PIPELINE = 3
    EDGE = 4


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the caller of ``up`` decides. ``cwd``: where a ``tokentrail.toml`` may lie; None: only the folder's own.

    Ports: 0 for any, another one is demanded. ``edge_port`` None: from ``EDGE_PORT`` on where those are free.
    """

    folder: Folder
    environ: Mapping[str, str]
    cwd: Path | None = None
    edges: int = 2
    edge_port: int | None = None
    kafka_port: int = 0
    clickhouse_port: int = 0
    brokers: Literal[1, 3] = 1
    with_model: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """What the stack stands on, as decided from configuration and options."""

    settings: Settings
    config: Path
    ports: Mapping[str, int]
    runs_kafka: bool
    runs_clickhouse: bool
    runs_simulator: bool
    weights: Path | None = None

    @property
    def clickhouse_url(self) -> str:
        """Where ClickHouse is."""
        return (
            f"http://{HOST}:{self.ports['clickhouse']}"
            if self.runs_clickhouse
            else self.settings.clickhouse.url
        )

    @property
    def default_model(self) -> str:
        """A model that this stack serves."""
        if self.weights is not None:
            return model.MODEL_NAME
        return SIMULATOR_MODEL if self.runs_simulator else next(iter(self.settings.models), "")


def wanted_ports(options: UpOptions) -> dict[str, int]:
    """Name → preferred port (0: any) of everything that this stack could have to listen."""
    first = EDGE_PORT if options.edge_port is None else options.edge_port
    edges = {f"edge-{n}": first and first + n - 1 for n in range(1, options.edges + 1)}
    return {**edges, "clickhouse": options.clickhouse_port, "simulator": 0, "model": 0}


def kafka_options(options: UpOptions) -> KafkaOptions:
    """The embedded broker of this folder."""
    return KafkaOptions(
        data_dir=options.folder.path / "kafka",
        cache_dir=default_cache_dir(options.environ),
        environ=options.environ,
        port=options.kafka_port,
        nodes=options.brokers,
    )


def base_services(options: UpOptions, base: Base, kafka: PreparedKafka | None) -> list[Service]:
    """Log, warehouse and provider, as far as they are ours to run."""
    services = []
    if kafka is not None:
        services += [_kafka_service(options, kafka, node_id) for node_id in kafka.node_ids]
    if base.runs_clickhouse:
        command = clickhouse_command(options.folder.path / "clickhouse", base.ports["clickhouse"])
        service = _http_service(options, "clickhouse", command, base.clickhouse_url, "/ping")
        services.append(replace(service, stop_grace_s=STOP_TIMEOUT_S))
    if base.runs_simulator:
        port = base.ports["simulator"]
        services.append(
            _http_service(options, "simulator", simulator.command(port), f"http://{HOST}:{port}", "/healthz")
        )
    if base.weights is not None:
        port = base.ports["model"]
        services.append(
            _http_service(
                options, "model", model.command(port, base.weights), f"http://{HOST}:{port}", "/v1/models"
            )
        )
    return services


def worker_services(
    options: UpOptions,
    base: Base,
    bootstrap_servers: str,
    left: Mapping[str, frozenset[str]] | None = None,
) -> list[Service]:
    """Sinks, pipeline and edges. ``left``: who is in their groups before they start."""
    shared = child_environment(options, base, bootstrap_servers)
    cwd = base.config.parent
    services = [
        Service(
            name=name,
            tier=tier,
            command=[sys.executable, "-m", name],
            cwd=cwd,
            env=lambda _: shared,
            is_ready=Joined(bootstrap_servers, groups, left),
            stop_grace_s=base.settings.worker_stop_s + MARGIN_S,
        )
        for name, tier, groups in (
            ("sinks", Tier.SINKS, SINK_GROUPS),
            ("pipeline", Tier.PIPELINE, PIPELINE_GROUPS),
        )
    ]
    for n in range(1, options.edges + 1):
        name = f"edge-{n}"
        url = f"http://{HOST}:{base.ports[name]}"
        services.append(
            Service(
                name=name,
                tier=Tier.EDGE,
                command=[sys.executable, "-m", "edge"],
                cwd=cwd,
                env=_edge_environment(shared, name, base.ports[name]),
                is_ready=answers(f"{url}/readyz"),
                url=url,
                stop_grace_s=base.settings.edge_stop_s + MARGIN_S,
            )
        )
    return services


def child_environment(options: UpOptions, base: Base, bootstrap_servers: str) -> dict[str, str]:
    """What every process of ours is told on top of the configuration file and the caller's environment."""
    settings = base.settings
    told = {
        "PYTHONUNBUFFERED": "1",
        "TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "TOKENTRAIL_CLICKHOUSE__URL": base.clickhouse_url,
    }
    if "data_dir" not in settings.pipeline.model_fields_set:
        told["TOKENTRAIL_PIPELINE__DATA_DIR"] = str((options.folder.path / "faust").absolute())
    if not settings.price_files and PRICES.is_file():
        told["TOKENTRAIL_PRICE_FILES"] = json.dumps([str(PRICES)])
    if base.runs_simulator:
        url = f"http://{HOST}:{base.ports['simulator']}"
        for name in SIMULATED.keys() & settings.providers.keys():
            base_url = simulator_base_url(settings.providers[name].dialect, url)
            told[f"TOKENTRAIL_PROVIDERS__{name.upper()}__BASE_URL"] = base_url
    if base.weights is not None:
        told["TOKENTRAIL_PROVIDERS__MODEL__BASE_URL"] = f"http://{HOST}:{base.ports['model']}/v1"
        told[f"TOKENTRAIL_MODELS__{model.MODEL_NAME}"] = json.dumps([{"provider": "model"}])
    if not settings.default_route:
        told |= _real_providers(options.environ, settings)
    return {**options.environ, **told}


def _real_providers(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Real providers serve what no other route names, as soon as their own keys are in the environment."""
    told: dict[str, str] = {}
    routes: list[dict[str, str]] = []
    for name, real in REAL_PROVIDERS.items():
        if not (key := environ.get(real.key)) or name in settings.providers:
            continue
        prefix = f"TOKENTRAIL_PROVIDERS__{name.upper()}__"
        told |= {
            f"{prefix}DIALECT": real.dialect,
            f"{prefix}BASE_URL": real.base_url,
            f"{prefix}API_KEY": key,
        }
        routes.append({"provider": name})
    return told | ({"TOKENTRAIL_DEFAULT_ROUTE": json.dumps(routes)} if routes else {})


def _edge_environment(shared: Mapping[str, str], name: str, port: int) -> Callable[[int], Mapping[str, str]]:
    def environment(start: int) -> Mapping[str, str]:
        # Unique per running process: an edge that comes back must not take its predecessor's records for its own
        return {
            **shared,
            "TOKENTRAIL_EDGE__ID": f"{name}.{int(time.time()):x}.{start}",
            "TOKENTRAIL_EDGE__HOST": HOST,
            "TOKENTRAIL_EDGE__PORT": str(port),
        }

    return environment


def _kafka_service(options: UpOptions, kafka: PreparedKafka, node_id: int) -> Service:
    async def is_ready() -> bool:
        return await in_thread(kafka.is_ready)  # all of them: a cluster is ready together

    return Service(
        name="kafka" if len(kafka.node_ids) == 1 else f"kafka-{node_id}",
        tier=Tier.LOG,
        command=kafka.command(node_id),
        cwd=options.folder.path,
        env=lambda _: options.environ,
        is_ready=is_ready,
        url=kafka.bootstrap_servers.split(",")[node_id - 1],
        stop_grace_s=STOP_GRACE_S,
        on_started=lambda pid: kafka.record_started(node_id, pid),
        explain_exit=lambda code: str(kafka.explain_exit(node_id, code)),
    )


def _http_service(options: UpOptions, name: str, command: list[str], url: str, probe: str) -> Service:
    return Service(
        name=name,
        tier=Tier.BASE,
        command=command,
        cwd=options.folder.path,
        env=lambda _: {**options.environ, "PYTHONUNBUFFERED": "1"},
        is_ready=answers(url + probe),
        url=url,
    )
