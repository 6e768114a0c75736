"""Each vector of ``--casebook`` as a test, dispatched by form to ``form_<form>.py``.

A form's module has ``unsupported(vector) -> str | None`` (a feature that it reads off the vector and does not play yet)
and ``run(vector, tmp_path)``, plain or async; that of a form with framings is given ``framing=`` as well.
"""

import asyncio
import importlib
import importlib.util
import inspect

import pytest


def form_module(form: str):
    """The module that plays this form, or None where there is none yet."""
    name = f"{__package__}.form_{form}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def test_vector(case, tmp_path, record_property):
    """The product makes of this input what the vector says."""
    vector = case.vector
    form = vector["form"]
    record_property("casebook_form", form)
    module = form_module(form)
    if module is None:
        pytest.skip(f"form {form} is not supported yet")
    if reason := module.unsupported(vector):
        pytest.skip(reason)
    framed = {"framing": case.framing} if case.framing else {}
    if inspect.iscoroutinefunction(module.run):
        asyncio.run(module.run(vector, tmp_path, **framed))
    else:
        module.run(vector, tmp_path, **framed)
