"""Which jars the embedded broker runs: the locked ones, KAFKA_HOME, and where missing ones are fetched from."""

from __future__ import annotations

import contextlib
import http.server
import threading
from pathlib import Path

import pytest

from compose.embedded.kafka import (
    DataDirUnusableError,
    JarMismatchError,
    JarsUnavailableError,
    KafkaOptions,
    LockFileError,
    default_cache_dir,
    fetch,
    prepare,
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


def make_cache(tmp_path: Path) -> tuple[Path, Path, LockedJar]:
    """Give (cache dir, lock file, its one jar): a cache that is complete without any download."""
    folder = tmp_path / "cache" / "kafka" / KAFKA_VERSION
    folder.mkdir(parents=True)
    (folder / "a-1.jar").write_bytes(b"the jar")
    jar = LockedJar("g:a:1", "a-1.jar", sha256_of(folder / "a-1.jar"))
    lock = tmp_path / "lock"
    lock.write_text(render_lock([jar]))
    return tmp_path / "cache", lock, jar


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


@contextlib.contextmanager
def maven_mirror(home: Path, monkeypatch, files: dict[str, bytes]):
    """Serve these files as a Maven repository which `home`'s settings.xml names as the mirror of central."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *arguments):
            """Say nothing."""

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        (home / ".m2").mkdir()
        (home / ".m2" / "settings.xml").write_text(
            "<settings><mirrors><mirror><id>m</id><mirrorOf>central</mirrorOf>"
            f"<url>http://127.0.0.1:{server.server_port}/maven</url></mirror></mirrors></settings>"
        )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_missing_jar_is_fetched_from_the_mirror_of_mavens_settings(tmp_path, monkeypatch):
    """With nothing but Python, a jar comes from the machine's own mirror and is then used from the cache."""
    cache, lock, jar = make_cache(tmp_path)
    path = cache / "kafka" / KAFKA_VERSION / jar.file_name
    path.unlink()
    with maven_mirror(tmp_path, monkeypatch, {"/maven/g/a/1/a-1.jar": b"the jar"}):
        assert find_jars({"HOME": str(tmp_path)}, cache, lock).paths == (path,)
    assert find_jars({"HOME": str(tmp_path)}, cache, lock).paths == (path,)
    assert list(path.parent.iterdir()) == [path]


def test_a_wrong_download_never_reaches_the_cache(tmp_path, monkeypatch):
    """What the repository serves is compared with the lock before it gets its place."""
    cache, lock, jar = make_cache(tmp_path)
    path = cache / "kafka" / KAFKA_VERSION / jar.file_name
    path.unlink()
    with (
        maven_mirror(tmp_path, monkeypatch, {"/maven/g/a/1/a-1.jar": b"the jar, but changed"}),
        pytest.raises(JarMismatchError, match="g:a:1"),
    ):
        find_jars({"HOME": str(tmp_path)}, cache, lock)
    assert list(path.parent.iterdir()) == []


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


def kafka_home(tmp_path: Path) -> Path:
    (tmp_path / "libs").mkdir()
    for name in ("kafka_2.13-4.1.2.jar", "other.jar"):
        (tmp_path / "libs" / name).touch()
    return tmp_path


def test_kafka_home_comes_before_the_lock(tmp_path):
    """KAFKA_HOME with a Kafka 4 is used as it is, and its version is read off its own jar."""
    found = find_jars({"KAFKA_HOME": str(kafka_home(tmp_path))}, tmp_path / "cache", tmp_path / "no-lock")
    assert found.version == "4.1.2"
    assert {p.name for p in found.paths} == {"kafka_2.13-4.1.2.jar", "other.jar"}


@pytest.mark.parametrize(("jar", "said"), [("other.jar", "has no libs"), ("kafka_2.13-3.9.1.jar", "too old")])
def test_a_kafka_home_that_is_no_kafka_4_is_an_error(tmp_path, jar, said):
    """A wrong KAFKA_HOME is never passed over in silence."""
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / jar).touch()
    with pytest.raises(JarsUnavailableError, match=said):
        find_jars({"KAFKA_HOME": str(tmp_path)}, tmp_path / "cache")


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


@pytest.mark.parametrize("name", ["a,b", "file/below"])
def test_a_directory_that_kafka_cannot_use_is_named(tmp_path, name):
    """A comma in the path, or a path below a file, is said before anything is written there."""
    (tmp_path / "file").touch()
    options = KafkaOptions(tmp_path / name, tmp_path, {"KAFKA_HOME": str(kafka_home(tmp_path))})
    with pytest.raises(DataDirUnusableError, match=name):
        prepare(options)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    """A cache folder below a file says which folder, and how to choose another."""
    lock = make_cache(tmp_path)[1]
    (tmp_path / "file").touch()
    with pytest.raises(JarsUnavailableError, match=r"file/kafka.*TOKENTRAIL_CACHE"):
        find_jars({"HOME": str(tmp_path)}, tmp_path / "file", lock)
