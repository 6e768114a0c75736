"""The configuration of a stack: which ``tokentrail.toml`` is in force, and the one that is written when there is none.

Invariants: an existing file is never changed; keys stand in it as hashes only; the clear ones are in ``keys.json``,
readable by their owner. Before this file: ``state``. After it: ``stack`` and ``schemas.settings``.
"""

import hashlib
import secrets
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from compose.embedded.simulator import PRESETS
from compose.state import Folder
from schemas.errors import TokentrailError
from schemas.settings import Settings

CONFIG_NAME = "tokentrail.toml"
TENANTS = ("acme", "globex")
_KEY_BYTES = 18


class Simulated(NamedTuple):
    """The simulator as a provider of one dialect; ``prefix`` stands before its models' names, since a model has one."""

    dialect: str
    prefix: str


SIMULATED = {
    "simulator": Simulated("openai.chat", ""),
    "simulator_responses": Simulated("openai.responses", "responses/"),
    "simulator_messages": Simulated("anthropic.messages", "messages/"),
}
"""Provider → what it speaks, in a configuration that ``up`` writes."""


class ConfigInvalid(TokentrailError):
    """The configuration contradicts itself or names what does not exist."""


def config_in_force(folder: Folder, cwd: Path | None) -> Path:
    """The file of the working directory if there is one, else the folder's own."""
    if cwd is not None and (cwd / CONFIG_NAME).is_file():
        return cwd / CONFIG_NAME
    return folder.config


def load_settings(path: Path) -> Settings:
    """Settings from this file and the environment. Raises ConfigInvalid with one line per fault."""

    class _Settings(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        return _Settings()
    except ValidationError as error:
        faults = "\n".join(
            f"  {'.'.join(str(part) for part in fault['loc']) or 'settings'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise ConfigInvalid(
            f"The configuration of {path} and the environment cannot be used:\n{faults}"
        ) from error
    except ValueError as error:
        raise ConfigInvalid(
            f"The configuration of {path} and the environment cannot be used: {error}"
        ) from error


def write_development_config(folder: Folder, simulator_url: str) -> dict[str, str]:
    """Write ``tokentrail.toml`` with the simulator, two tenants and new keys; tenant → key in the clear.

    ``simulator_url`` ends before ``/v1``.
    """
    keys = {tenant: f"tt-dev-{tenant}-{secrets.token_urlsafe(_KEY_BYTES)}" for tenant in TENANTS}
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.config.touch(mode=0o600)
    folder.config.write_text(_render(simulator_url, keys), encoding="utf-8")
    folder.write_keys(keys)
    return keys


def simulator_base_url(dialect: str, simulator_url: str) -> str:
    """The simulator's ``base_url`` in a dialect, as its SDK takes it."""
    return simulator_url if dialect == "anthropic.messages" else f"{simulator_url}/v1"


def _render(simulator_url: str, keys: dict[str, str]) -> str:
    urls = {name: simulator_base_url(spoken.dialect, simulator_url) for name, spoken in SIMULATED.items()}
    providers = "\n\n".join(
        f'[providers.{name}]\ndialect = "{spoken.dialect}"\nbase_url = "{urls[name]}"'
        for name, spoken in SIMULATED.items()
    )
    models = "\n".join(
        f'"{spoken.prefix}{model}" = [{{ provider = "{name}", model = "{model}" }}]'
        for name, spoken in SIMULATED.items()
        for model in PRESETS
    )
    key_tables = "\n".join(
        f"""
[[keys]]
id = "{tenant}-development"
tenant = "{tenant}"
name = "development key of {tenant}"
roles = ["caller", "operator"]
sha256 = "{hashlib.sha256(key.encode()).hexdigest()}\""""
        for tenant, key in keys.items()
    )
    return f"""\
# Written once by `tokentrail up`, for development; it is yours to edit and is not written again.
# Every field, its unit and its default: `tokentrail config show`.

[secrets]
cursor = ["{secrets.token_urlsafe(_KEY_BYTES)}"]  # signs the SSE ids; keep old ones behind it as long as events are kept

# The simulator, in each dialect. While `tokentrail up` runs its own, it says where that is.
{providers}
{key_tables}

[models]
{models}
"""
