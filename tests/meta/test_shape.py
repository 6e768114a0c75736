"""How the code is cut and what it must not contain."""

import ast
import re

import pytest

from tests.support.sources import PACKAGES, ROOT, python_files, text_files

FILE_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
LONG_FILES = frozenset()
"""Files that may be longer, each with a reason; there is none."""

MARKERS = ("TO" + "DO", "FIX" + "ME", "XX" + "X:", "NotImplemented" + "Error")
MACHINE_PATH = re.compile(r"(?<![\w.$}{*])/(?:home|root|Users|work|mnt)/[\w.-]+")
URL_HOST = re.compile(r"https?://([A-Za-z0-9.-]+)")
HOSTS = {  # loopback, names for examples, namespaces of formats, standards, and the providers that we can call
    "127.0.0.1",
    "localhost",
    "api.openai.com",
    "api.anthropic.com",
    "example.com",
    "example.org",
    "www.apache.org",
    "maven.apache.org",
    "keepachangelog.com",
    "semver.org",
    "html.spec.whatwg.org",
    "www.w3.org",
    "www.rfc-editor.org",
}
RESERVED = (".example", ".test", ".invalid", ".example.com", ".example.org")


def text_of(path):
    return (ROOT / path).read_text()


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_short():
    """A file that is longer than 300 lines holds two things."""
    lines = {path.as_posix(): text_of(path).count("\n") for path in python_files()}
    assert {path: n for path, n in lines.items() if n > FILE_LINES_MAX and path not in LONG_FILES} == {}


def test_functions_are_short():
    """A function that is longer than 60 lines does two things."""
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in python_files()
        for node in functions(ast.parse(text_of(path)))
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_say_what_they_are():
    """Every module has a docstring."""
    assert [str(path) for path in python_files() if not ast.get_docstring(ast.parse(text_of(path)))] == []


def test_tests_state_their_claim():
    """Every test says in a docstring what it claims."""
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in python_files("tests", "edge/clients")
        for node in functions(ast.parse(text_of(path)))
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize("marker", MARKERS)
def test_nothing_is_left_for_later(marker):
    """No file has a mark of unfinished work."""
    assert [str(path) for path in text_files() if marker in text_of(path)] == []


def test_no_machine_paths():
    """No file names a folder of the machine on which it was written."""
    found = {str(path): MACHINE_PATH.findall(text_of(path)) for path in text_files()}
    assert {path: hits for path, hits in found.items() if hits} == {}


def test_no_foreign_hosts():
    """No file names a host but loopback, names for examples, standards, and providers: no registry, nobody's server."""
    found = {}
    for path in text_files():
        hosts = {host for host in URL_HOST.findall(text_of(path)) if "." in host}
        if strange := {host for host in hosts - HOSTS if not host.endswith(RESERVED)}:
            found[str(path)] = strange
    assert found == {}


def test_the_root_is_tidy():
    """The root holds the packages, the tests, the docs, and the files that tools look for there."""
    expected = {*PACKAGES, "tests", "docs", "requirements"}
    expected |= {"pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "LICENSE"}
    assert {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - expected == set()


def test_migrations_are_numbered_without_holes():
    """Two files that took one number at the same time are found before any database is."""
    names = sorted(path.name for path in (ROOT / "sinks" / "sql").glob("*.sql"))
    assert [int(name[:3]) for name in names] == list(range(1, len(names) + 1))
