"""The drill of resumes itself, in short: what ``tokentrail drill resume`` runs at length."""

import json

import pytest
from typer.testing import CliRunner

from compose import checkout
from compose.commands import drill
from tests.support.browser import CHROMIUM
from tests.support.javascript import missing

CUTS = 120


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed here (make test installs it as root)")
@pytest.mark.timeout(600)  # a stack, a browser and eight clients start, on a machine with other work
def test_every_kind_of_client_loses_nothing(capfd):
    """Cut at random over two edges that die and freeze, no kind of client loses, repeats or reorders an event."""
    result = CliRunner().invoke(drill.app, ["resume", "--cuts", str(CUTS), "--json"])
    said = json.loads(capfd.readouterr().out)
    assert (result.exit_code == 0) is said["ok"] is (said["wrong"] == said["unended"] == [])
    assert said["complaints"] == []
    assert said["cuts"] >= CUTS
    assert (said["lost"], said["repeated"], said["reordered"], said["wrong"]) == (0, 0, 0, [])
    assert len(said["streams"]) == 8
    assert said["skipped"] == {}


def test_an_installed_package_says_where_the_drills_are(tmp_path, monkeypatch):
    """Without a checkout the command says what is needed, and runs nothing."""
    monkeypatch.setattr(drill, "ROOT", tmp_path)
    result = CliRunner().invoke(drill.app, ["resume"])
    assert isinstance(result.exception, checkout.NoCheckout)
