"""Which stack a command speaks to: flags first, then the environment, then the ``up`` that runs in this folder.

Invariant: a command never guesses; where nothing says where Kafka, ClickHouse or an edge is, the error names the three
ways to say it. Before this file: ``state``, ``config``. After it: every file of ``commands``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from compose.config import config_in_force, load_settings
from compose.state import Folder, StackState
from schemas.errors import TokentrailError
from schemas.settings import ClickHouse, Settings

KEY_NAME = "TOKENTRAIL_API_KEY"


class NoStack(TokentrailError):
    """Nothing says where the asked-for part of a stack is."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where everything is, as far as it is known. ``keys``: API keys to try, in this order."""

    settings: Settings
    config: Path
    state: StackState | None
    bootstrap_servers: str | None
    clickhouse: ClickHouse | None
    edges: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def kafka(self) -> str:
        """The bootstrap servers. Raises NoStack."""
        return self.bootstrap_servers or _missing("Kafka", "TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS")

    @property
    def warehouse(self) -> ClickHouse:
        """ClickHouse's settings. Raises NoStack."""
        if self.clickhouse is None:
            _missing("ClickHouse", "TOKENTRAIL_CLICKHOUSE__URL")
        return self.clickhouse

    @property
    def edge(self) -> str:
        """The first edge. Raises NoStack."""
        return self.edges[0] if self.edges else _missing("an edge", "--edge http://host:port")


def find_target(
    folder: Path, cwd: Path, environ: Mapping[str, str], *, edge: str | None = None, key: str | None = None
) -> Target:
    """The stack that this folder, environment and these flags mean."""
    files = Folder(folder)
    state = files.read_state()
    if state is not None and not (state.supervisor_runs or any(p.runs for p in state.processes)):
        state = None
    config = Path(state.config) if state is not None else config_in_force(files, cwd)
    settings = load_settings(config)
    explicit_key = key or environ.get(KEY_NAME)
    return Target(
        settings=settings,
        config=config,
        state=state,
        bootstrap_servers=_kafka(settings, state),
        clickhouse=_clickhouse(settings, state),
        edges=_edges(settings, state, edge),
        keys=(explicit_key,) if explicit_key else tuple(files.read_keys().values()),
    )


def _kafka(settings: Settings, state: StackState | None) -> str | None:
    if "bootstrap_servers" in settings.kafka.model_fields_set:
        return settings.kafka.bootstrap_servers
    return state.kafka.address if state is not None else None


def _clickhouse(settings: Settings, state: StackState | None) -> ClickHouse | None:
    if settings.clickhouse.url:
        return settings.clickhouse
    if state is None:
        return None
    return settings.clickhouse.model_copy(update={"url": state.clickhouse.address})


def _edges(settings: Settings, state: StackState | None, edge: str | None) -> tuple[str, ...]:
    if edge is not None:
        return (edge,)
    if {"host", "port"} & settings.edge.model_fields_set:
        return (f"http://{settings.edge.host}:{settings.edge.port}",)
    return tuple(state.edges) if state is not None else ()


def _missing(what: str, setting: str) -> NoReturn:
    raise NoStack(
        f"Nothing says where {what} is: no stack runs in this folder. Start one with `tokentrail up`, name the folder of "
        f"a running one with --dir, or give {setting}."
    )
