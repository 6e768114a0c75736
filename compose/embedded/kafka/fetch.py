"""The one file that knows `jgo`: get the broker's jars from a Maven repository with nothing but Python.

jgo 3 resolves and downloads in pure Python; neither Maven nor a Java is needed. Two facts shape this file. jgo treats
each coordinate it is given as a bill of materials too, so that log4j's parent would silently pin `kafka-clients` to
3.9: every coordinate is therefore asked for "raw" (a trailing `!`). And jgo only warns when a download's checksum is
wrong: what comes out of here is untrusted until `jars.py` has compared its SHA-256 with the lock.

Where jars come from: a mirror of `central` in Maven's own `~/.m2/settings.xml`, if there is one; else the
`[repositories]` of jgo's own configuration, then Maven Central. Proxies, certificates and passwords are taken from
where `requests` takes them (HTTPS_PROXY, REQUESTS_CA_BUNDLE, ~/.netrc).
Before this file: `jars.py` asks for what is missing. After it: `jars.py` verifies what came.
"""

from __future__ import annotations

import shutil
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from compose.embedded.kafka.errors import JarsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TIMEOUT_S = 30  # per request; the largest jar has 7 MB
_PARALLEL_DOWNLOADS = 8
_REPOSITORY = "central"


def repositories(environ: Mapping[str, str]) -> dict[str, str]:
    """Give name -> URL of the Maven repositories to ask, in order."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    mirror = mirror_of_central(_maven_settings(environ))
    if mirror:
        return {_REPOSITORY: mirror}
    configured: dict[str, str] = dict(GlobalSettings.load().repositories)
    return configured | {_REPOSITORY: configured.get(_REPOSITORY, MAVEN_CENTRAL_URL)}


def mirror_of_central(settings_xml: str) -> str | None:
    """Give the URL of the first mirror in a Maven settings.xml that stands in for central, or None."""
    if not settings_xml.strip():
        return None
    try:
        root = ET.fromstring(settings_xml)  # noqa: S314 - the user's own Maven settings, read with the user's rights
    except ET.ParseError as error:
        raise JarsUnavailableError(
            f"Maven's settings.xml cannot be parsed ({error}). Repair it, or set KAFKA_HOME to an unpacked Kafka 4."
        ) from error
    for mirror in root.iterfind(".//{*}mirrors/{*}mirror"):
        fields = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in mirror}
        patterns = [pattern.strip() for pattern in fields.get("mirrorOf", "").split(",")]
        if f"!{_REPOSITORY}" in patterns or fields.get("blocked") == "true" or not fields.get("url"):
            continue
        if {"*", "external:*", _REPOSITORY} & set(patterns):
            return fields["url"].rstrip("/")
    return None


def resolve(coordinates: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """Give the `group:artifact:version` of these artifacts and of all they need at run time, sorted."""
    with tempfile.TemporaryDirectory(prefix="tokentrail-resolve-") as scratch:
        context = _context(Path(scratch), environ)
        try:
            wanted = [context.create_dependency(f"{coordinate}!") for coordinate in coordinates]
            given, needed = context.resolver.resolve(wanted)
        except (OSError, RuntimeError, ValueError) as error:
            raise _unavailable(
                "The list of jars could not be resolved", error, context.remote_repos
            ) from error
        kept = [*given, *(dependency for dependency in needed if dependency.scope in ("compile", "runtime"))]
        return sorted(f"{d.groupId}:{d.artifactId}:{d.version}" for d in kept)


def download(
    coordinates: Iterable[str], into: Path, environ: Mapping[str, str], accept: Callable[[str, Path], None]
) -> None:
    """Download each artifact's jar into the folder `into`, under its own file name, all or an error.

    `accept(coordinate, path)` sees each file before it gets its place, and raises to refuse it. A file appears in
    `into` whole or not at all, so two processes may do this at once.
    """
    try:
        into.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".download-", dir=into))
    except OSError as error:
        raise JarsUnavailableError(
            f"The jars' folder {into} cannot be written to ({error.strerror}). Make it writable, or set "
            "TOKENTRAIL_CACHE to another folder."
        ) from error
    context = _context(scratch, environ)

    def fetch_one(coordinate: str) -> None:
        artifact = context.create_dependency(f"{coordinate}!").artifact
        try:
            downloaded = Path(artifact.resolve())
        except (OSError, RuntimeError) as error:
            raise _unavailable(
                f"{coordinate} could not be downloaded", error, context.remote_repos
            ) from error
        accept(coordinate, downloaded)
        downloaded.replace(into / downloaded.name)

    try:
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            for _ in pool.map(fetch_one, coordinates):
                pass
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _context(repo_cache: Path, environ: Mapping[str, str]) -> _MavenContext:
    from jgo.maven import MavenContext

    return MavenContext(repo_cache=repo_cache, remote_repos=repositories(environ), timeout=_TIMEOUT_S)


def _maven_settings(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME")
    path = Path(home) / ".m2" / "settings.xml" if home else None
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _unavailable(what: str, error: Exception, tried: Mapping[str, str]) -> JarsUnavailableError:
    return JarsUnavailableError(
        f"{what} from {', '.join(tried.values())}: {error}. Either connect this machine to a Maven repository (a "
        "mirror is read from ~/.m2/settings.xml, a proxy from HTTPS_PROXY) and start again, or unpack a Kafka 4 "
        "release and set KAFKA_HOME to its folder."
    )


if TYPE_CHECKING:
    from typing import Any

    _MavenContext = Any  # jgo ships no types
