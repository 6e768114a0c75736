"""The distribution: what is in it, and which of its files decide without doing."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import tokentrail_client

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tokentrail_client"
PURE = (
    "states",
    "frames",
    "endings",
    "advice",
    "effects",
    "call",
    "reading",
    "standing",
    "course",
    "checksums",
    "acks",
    "items",
)
DOERS = {
    "socket",
    "ssl",
    "sqlite3",
    "threading",
    "time",
    "random",
    "os",
    "asyncio",
    "anyio",
    "httpx",
    "httpx2",
}


def imported(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


def test_the_wheel_is_the_package_alone(tmp_path):
    """The wheel holds the package with its types, and nothing else."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if ".dist-info/" not in name}
    assert modules == {f"tokentrail_client/{path.name}" for path in PACKAGE.iterdir() if path.is_file()}
    assert "tokentrail_client/py.typed" in modules


def test_what_decides_does_nothing():
    """The files that decide import no clock, no socket, no database and no HTTP library."""
    found = {name: imported(PACKAGE / f"{name}.py") & DOERS for name in PURE}
    assert {name: doers for name, doers in found.items() if doers} == {}


def test_the_map_is_whole():
    """The package's map names each of its files, and every public name is there."""
    text = tokentrail_client.__doc__
    assert [
        p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__" and f"``{p.stem}``" not in text
    ] == []
    assert [name for name in tokentrail_client.__all__ if not hasattr(tokentrail_client, name)] == []
