"""Which jars are the broker: those of `KAFKA_HOME`, else the locked ones, each checked against its SHA-256.

Invariants: no jar of the lock is ever put on a class path before its SHA-256 was compared in this process, and the
class path names exactly the locked files, so that a stray jar beside them is not run. A jar that differs is an error,
never silently fetched again: somebody should look at it first. KAFKA_HOME is the user's own choice and is not checked.

`python -m compose.embedded.kafka.jars --write-lock` resolves `WANTED` anew and writes `kafka-jars.lock`; look at the
difference before committing it. Before this file: `fetch.py`. After it: `node.py`, which starts the broker.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compose.embedded.kafka import fetch
from compose.embedded.kafka.errors import JarMismatchError, JarsUnavailableError, LockFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KAFKA_VERSION = "4.4.0"
WANTED = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # kafka_2.13 brings log4j but no binding of slf4j to it: without this one the broker logs nothing at all
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)
LOCK_PATH = Path(__file__).with_name("kafka-jars.lock")
MIN_KAFKA_MAJOR = 4  # the settings in layout.py are those of a KRaft-only Kafka

_LOCK_HEADER = """\
# The jars of the embedded Kafka: coordinate, file name, SHA-256. Verified before every start.
# Written by: python -m compose.embedded.kafka.jars --write-lock
"""
_LOCK_FIELDS = 3
_SHA256_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of the lock."""

    coordinate: str
    file_name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The broker's class path, its version, and where it was found (for people)."""

    paths: tuple[Path, ...]
    version: str
    found_by: str


def find_jars(environ: Mapping[str, str], cache_dir: Path, lock_path: Path = LOCK_PATH) -> KafkaJars:
    """Give the jars to run, downloading the missing ones of the lock into `cache_dir`.

    Raises JarsUnavailableError, JarMismatchError or LockFileError.
    """
    kafka_home = environ.get("KAFKA_HOME")
    if kafka_home:
        return jars_of_home(Path(kafka_home).absolute())
    lock = parse_lock(lock_path.read_text(encoding="utf-8"))
    folder = cache_dir / "kafka" / KAFKA_VERSION
    wanted = {jar.coordinate: jar for jar in lock}
    missing = [jar.coordinate for jar in lock if not (folder / jar.file_name).is_file()]
    if missing:
        fetch.download(missing, folder, environ, lambda coordinate, path: verify(wanted[coordinate], path))
    for jar in lock:
        verify(jar, folder / jar.file_name)
    return KafkaJars(
        tuple(folder / jar.file_name for jar in lock), KAFKA_VERSION, "the jars of kafka-jars.lock"
    )


def jars_of_home(kafka_home: Path) -> KafkaJars:
    """Give the jars of an unpacked Kafka release; its `libs` must hold a Kafka 4."""
    paths = tuple(sorted((kafka_home / "libs").glob("*.jar")))
    names = (re.fullmatch(r"kafka_2\.\d+-(\d+)(\.[\w.-]+)\.jar", path.name) for path in paths)
    versions = [(int(match[1]), match[1] + match[2]) for match in names if match]
    way_out = "Set KAFKA_HOME to the folder of an unpacked Kafka 4 release, or unset it to have the jars downloaded."
    if not versions:
        raise JarsUnavailableError(f"KAFKA_HOME is {kafka_home}, but it has no libs/kafka_2.*.jar. {way_out}")
    major, version = max(versions)
    if major < MIN_KAFKA_MAJOR:
        raise JarsUnavailableError(
            f"KAFKA_HOME is {kafka_home} with Kafka {version}, which is too old. {way_out}"
        )
    return KafkaJars(paths, version, "KAFKA_HOME")


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """Read the lock: one jar per line, `#` starts a comment line. Raises LockFileError with the line's number."""
    jars: list[LockedJar] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != _LOCK_FIELDS or not _SHA256_HEX.fullmatch(fields[2]) or "/" in fields[1]:
            raise LockFileError(
                f"Line {number} of kafka-jars.lock is not 'coordinate file-name sha256'. Restore the committed file."
            )
        jars.append(LockedJar(*fields))
    if not jars:
        raise LockFileError("kafka-jars.lock names no jar. Restore the committed file.")
    return tuple(jars)


def render_lock(jars: Iterable[LockedJar]) -> str:
    """Write the lock; `parse_lock` reads it back."""
    lines = sorted(f"{jar.coordinate} {jar.file_name} {jar.sha256}\n" for jar in jars)
    return _LOCK_HEADER + "".join(lines)


def verify(jar: LockedJar, path: Path) -> None:
    """Compare a file with its line of the lock. All 45 jars (43 MB) take 0.05 s."""
    found = sha256_of(path)
    if found != jar.sha256:
        raise JarMismatchError(
            f"{path} is not the locked {jar.coordinate}: SHA-256 is {found}, the lock says {jar.sha256}. If nobody "
            "changed it on purpose, delete the file and start again to have it downloaded anew."
        )


def sha256_of(path: Path) -> str:
    """Give the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def resolve_lock(environ: Mapping[str, str]) -> str:
    """Resolve WANTED anew and give the text of its lock. Trusts what the repository serves now."""
    jars: list[LockedJar] = []
    with tempfile.TemporaryDirectory(prefix="tokentrail-lock-") as scratch:
        fetch.download(
            fetch.resolve(WANTED, environ),
            Path(scratch),
            environ,
            lambda coordinate, path: jars.append(LockedJar(coordinate, path.name, sha256_of(path))),
        )
    return render_lock(jars)


def main(arguments: Sequence[str]) -> int:
    """Regenerate the lock, or tell whether the committed one is what the repository gives now."""
    parser = argparse.ArgumentParser(prog="python -m compose.embedded.kafka.jars", description=main.__doc__)
    parser.add_argument("--write-lock", action="store_true", help=f"write {LOCK_PATH.name}")
    options = parser.parse_args(arguments)
    text = resolve_lock(os.environ)
    if options.write_lock:
        LOCK_PATH.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{LOCK_PATH}: {len(parse_lock(text))} jars\n")
        return 0
    unchanged = LOCK_PATH.is_file() and LOCK_PATH.read_text(encoding="utf-8") == text
    sys.stdout.write(
        "the lock is what the repository gives\n" if unchanged else "the lock differs: see --write-lock\n"
    )
    return 0 if unchanged else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
