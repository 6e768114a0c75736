"""``tokentrail config show``: every setting with its value, where that comes from, and what it is for.

Secrets are masked by their type (pydantic's SecretStr), so that a new one cannot be forgotten here.
Before this file: ``cli``. After it: ``compose.config``, ``schemas.settings``.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer
from pydantic import BaseModel
from rich.markup import escape
from rich.padding import Padding

from compose.commands.common import DEFAULT_DIR, FolderOption, JsonOption, out, print_json, target_of

app = typer.Typer(no_args_is_help=True, help="The configuration in force.")
_PREFIX = "TOKENTRAIL_"


class Setting(NamedTuple):
    """One field. ``source``: environment, file or default."""

    name: str
    value: Any
    source: str
    description: str


@app.command("show")
def show(folder: FolderOption = DEFAULT_DIR, *, as_json: JsonOption = False) -> None:
    """Show every setting, its source and its reason; secrets are masked."""
    target = target_of(folder)
    settings = list(all_settings(target.settings, _read_toml(target.config), os.environ))
    if as_json:
        print_json({"file": target.config, "settings": {s.name: [s.value, s.source] for s in settings}})
        return
    colours = {"environment": "yellow", "file": "green", "default": "dim"}
    for setting in settings:
        source = f"[{colours[setting.source]}]({setting.source})[/]"
        out.print(f"[bold]{setting.name}[/] = {escape(str(setting.value))}  {source}", soft_wrap=True)
        if setting.description:
            out.print(Padding(f"[dim]{escape(setting.description)}[/]", (0, 0, 0, 4)))
    out.print(f"file: {target.config}" + ("" if target.config.exists() else " (there is none)"))


@app.command("check")
def check(folder: FolderOption = DEFAULT_DIR) -> None:
    """Exit code 0 if the file and the environment make a valid configuration; else every fault."""
    target = target_of(folder)
    out.print(f"[green]valid[/]  {target.config}")


def all_settings(
    settings: BaseModel, file: Mapping[str, Any], environ: Mapping[str, str], prefix: tuple[str, ...] = ()
) -> Iterator[Setting]:
    """Every leaf of the settings, in the order of their definition."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        path = (*prefix, name)
        below = file.get(name, {}) if isinstance(file, Mapping) else {}
        if isinstance(value, BaseModel):
            yield from all_settings(value, below, environ, path)
            continue
        variable = _PREFIX + "__".join(path).upper()
        if any(given.upper() == variable or given.upper().startswith(variable + "__") for given in environ):
            source = "environment"
        else:
            source = "file" if name in file else "default"
        yield Setting(".".join(path), _masked(value), source, field.description or "")


def _masked(value: Any) -> Any:
    """Plain values for printing; a SecretStr says ``**********`` by itself."""
    if isinstance(value, BaseModel):
        return {name: _masked(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: _masked(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    return value if isinstance(value, int | float | bool | None) else str(value)


def _read_toml(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return tomllib.load(file)
