"""What the quick start and the page on bills show can be run: Python names what exists, SQL is understood by the engine."""

import ast
import re

import openai
import pytest
import tokentrail_client
from typer.testing import CliRunner

from compose.cli import app
from tests.support.sources import ROOT
from tests.support.warehouse import empty_database

PAGE = "\n".join((ROOT / name).read_text() for name in ("docs/quickstart.md", "docs/billing.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)
QUERIES = [
    query.strip() for kind, text in BLOCKS if kind == "sql" for query in text.split(";") if query.strip()
]
CODE = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = [
    line for kind, text in BLOCKS if not kind for line in text.splitlines() if line.startswith("tokentrail ")
]


def test_there_is_something_to_run():
    """The pages have a program, questions and commands."""
    assert (len(CODE), len(QUERIES), len(COMMANDS)) == (1, 6, 3)


def test_the_program_names_what_exists():
    """Each attribute of a module that the program uses is there, and its arguments are taken."""
    for text in CODE:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = {"openai": openai, "tokentrail_client": tokentrail_client}.get(node.value.id)
                assert module is None or hasattr(module, node.attr), node.attr
    client = tokentrail_client.http_client(edges=["http://127.0.0.1:8081"])
    openai.OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="tt-x", http_client=client).close()


@pytest.mark.parametrize("query", QUERIES)
def test_the_questions_are_understood(clickhouse, query):
    """Each query of the page runs on the shipped views."""
    with empty_database(clickhouse) as store:
        assert store.query(query) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_take_their_options(command, tmp_path):
    """Each command of the page is understood; without a stack it says what is missing, not how it is used."""
    words = command.split()[1:]
    result = CliRunner().invoke(app, [*words, "--dir", str(tmp_path)])
    assert "Usage" not in result.output
    assert "No such option" not in result.output
