"""What the READMEs of the client libraries show runs as it stands there, with what is delivered, against running edges.

Only the addresses and the key are put in: those of the edges here. Python has the unpacked wheel, Node the files that the
manifest names, beside the SDKs.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.support.dialects import KEY, world
from tests.support.javascript import CLIENT, NODE_FOLDER, missing, node, run
from tests.support.sources import ROOT

PYTHON = ROOT / "edge/clients/python"
BLOCK = re.compile(r"^```(python|js)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = {kind: [text for _, text in BLOCK.findall((folder / "README.md").read_text())]
            for kind, folder in (("python", PYTHON), ("js", CLIENT))}  # fmt: skip
MODEL = "sim-fast"
"""What `tokentrail up` serves."""


@pytest.fixture
async def two():
    """Give two edges in front of the simulator."""
    async with world() as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Give a folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PYTHON, check=True, capture_output=True)
    zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Give a project of Node's that has the SDKs, and of us what is published."""
    folder = tmp_path_factory.mktemp("project")
    ours = folder / "node_modules/tokentrail-client"
    ours.mkdir(parents=True)
    for name in ("package.json", *json.loads((CLIENT / "package.json").read_text())["files"]):
        copy = shutil.copytree if (CLIENT / name).is_dir() else shutil.copy
        copy(CLIENT / name, ours / name)
    for installed in (NODE_FOLDER / "node_modules").iterdir():
        (folder / "node_modules" / installed.name).symlink_to(installed.resolve())
    return folder


def here(text, urls):
    """Give a snippet with the addresses and the key of the edges that run here."""
    for shown, real in zip(("http://127.0.0.1:8080", "http://127.0.0.1:8081"), urls, strict=True):
        text = text.replace(shown, real)
    return text.replace("tt-…", KEY)


def test_there_is_something_to_run():
    """Each README shows each way in, and the model is one that a new stack serves."""
    assert {kind: len(texts) for kind, texts in SNIPPETS.items()} == {"python": 2, "js": 4}
    assert all(MODEL in text for texts in SNIPPETS.values() for text in texts)


@pytest.mark.parametrize("number", range(len(SNIPPETS["python"])))
async def test_the_python_runs(two, wheel, tmp_path, number):
    """Each program says an answer of the simulator; one with a session says it again, and it is asked for once."""
    text = here(SNIPPETS["python"][number], two.urls)
    strict = {"PYTHONPATH": str(wheel), "PYTHONIOENCODING": "utf-8"}
    runs = 2 if "session=" in text else 1
    said = [
        await run([sys.executable, "-W", "error", "-c", text], tmp_path, environ=strict) for _ in range(runs)
    ]
    assert said[0] == said[-1]
    assert len(said[0]) > 50
    assert len(two.simulator.requests) == 1


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("number", range(len(SNIPPETS["js"])))
async def test_the_javascript_runs(two, project, number):
    """Each program says an answer of the simulator; one with a session says it again, and it is asked for once."""
    text = here(SNIPPETS["js"][number], two.urls)
    (project / "snippet.mjs").write_text(text)
    runs = 2 if "session:" in text else 1
    said = [await run([*node(), "--trace-warnings", "snippet.mjs"], project) for _ in range(runs)]
    assert said[0] == said[-1]
    assert len(said[0]) > 50
    assert len(two.simulator.requests) == 1
