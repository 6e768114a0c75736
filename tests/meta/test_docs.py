"""What the documents name exists."""

import re

import pytest

from schemas.settings import Settings
from tests.support.sources import ROOT

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]+(?:/[\w.*-]+)*\.(?:py|md|toml|sql|avsc|json|ya?ml|lock|conf)|(?:[\w-]+/)+")
MADE_WHEN_RUN = {"tokentrail.toml", "keys.json", "stack.json"}
"""Files that an operator or the stack makes."""
VERB = re.compile(r"\bmake ([a-z]+)\b")
SETTING = re.compile(r"\b(?:TOKENTRAIL_)?([A-Z]+)__([A-Z_]+)\b")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def text_of(name):
    return (ROOT / name).read_text()


def named_files(text):
    """Give the paths that stand in backquotes: file names with an ending that we use, and folders with their slash."""
    spans = (span.strip() for span in CODE.findall(text))
    return {span for span in spans if FILE.fullmatch(span) and span not in MADE_WHEN_RUN}


def exists(name):
    """Whether a path from the root, or with a star, leads to something."""
    return any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_files_exist(name):
    """Every file and folder that a document names is there, by its path from the root."""
    assert sorted(path for path in named_files(text_of(name)) if not exists(path)) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    """Every relative link of a document leads to a file."""
    targets = LINK.findall(text_of(name))
    assert [target for target in targets if not ((ROOT / name).parent / target).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_verbs_exist(name):
    """Every verb of make that a document shows is in the Makefile."""
    verbs = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    assert set(VERB.findall("\n".join(CODE.findall(text_of(name))))) <= verbs


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_settings_exist(name):
    """Every setting that a document names is a field of its section."""
    for section, field in SETTING.findall(text_of(name)):
        model = Settings.model_fields[section.lower()].annotation
        assert field.lower() in model.model_fields, f"{section}__{field}"


def test_help_lists_every_verb():
    """`make help` shows every verb, and each says what it does."""
    lines = [line for line in text_of("Makefile").splitlines() if re.match(r"[a-z]+:", line)]
    assert [line for line in lines if " ## " not in line] == []


def test_the_contracts_map_is_whole():
    """The reading order of the contract names each of its modules once."""
    text = text_of("schemas/__init__.py")
    rows = re.findall(r"^``(\w+)``  ", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        path.stem for path in (ROOT / "schemas").glob("*.py") if path.stem != "__init__"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`edge/follow.py` and `schemas/`", {"edge/follow.py", "schemas/"}),
        ("`schemas/avro/*.avsc`", {"schemas/avro/*.avsc"}),
        ("`tokentrail.toml`, `make demo`, `Last-Event-ID`, `/v1/x`, `a + b/c`", set()),
    ],
)
def test_the_check_itself(text, found):
    """The check takes paths for paths and nothing else."""
    assert named_files(text) == found
