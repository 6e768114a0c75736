"""Which Python the virtual environment is made with: tried on Pythons that say of themselves what a test wants."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _python(folder: Path, name: str, refuses: str) -> Path:
    """A Python that answers every question with yes, but the one that has this word in it."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$2" in *{refuses}*) exit 1;; esac\nexit 0\n')
    path.chmod(0o755)
    return path


def _found(path: Path, python: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{path}{os.pathsep}/bin", "PYTHON": python, "SYSTEM_BIN": str(path / "system")}
    return subprocess.run(
        ["/bin/sh", str(ROOT / "requirements" / "find-python")],
        env=env,
        text=True,
        capture_output=True,
        check=False,
    )


def test_an_optimised_python_on_the_path_is_taken(tmp_path: Path) -> None:
    """The first name on the PATH that can do it and is an optimised build is the answer."""
    _python(tmp_path, "python3.11", refuses="nothing-at-all")
    assert _found(tmp_path).stdout == "python3.11\n"


def test_of_one_version_the_systems_optimised_build_comes_first(tmp_path: Path) -> None:
    """A Python that a version manager compiled without optimisation gives way to the system's own of that version."""
    system = _python(tmp_path / "system", "python3.11", refuses="nothing-at-all")
    _python(tmp_path, "python3.11", refuses="enable-optimizations")
    assert _found(tmp_path).stdout == f"{system}\n"


def test_a_systems_build_that_is_not_optimised_changes_nothing(tmp_path: Path) -> None:
    """Where neither is optimised (or it is a 3.11 that is too old), the PATH decides."""
    _python(tmp_path, "python3.11", refuses="enable-optimizations")
    _python(tmp_path / "system", "python3.11", refuses="enable-optimizations")
    assert _found(tmp_path).stdout == "python3.11\n"


def test_a_python_that_is_asked_for_is_taken_as_it_is(tmp_path: Path) -> None:
    """PYTHON decides alone: no other build is put in its place."""
    asked = _python(tmp_path, "mine", refuses="enable-optimizations")
    assert _found(tmp_path, str(asked)).stdout == f"{asked}\n"


def test_a_python_without_venv_is_named_with_what_to_install(tmp_path: Path) -> None:
    """No Python that can make an environment is an error that says what to do."""
    asked = _python(tmp_path, "mine", refuses="ensurepip")
    found = _found(tmp_path, str(asked))
    assert found.returncode == 1
    assert "cannot make virtual environments" in found.stderr
