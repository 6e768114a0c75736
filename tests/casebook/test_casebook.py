"""Each vector of ``--casebook`` as a test, dispatched by form to ``form_<form>.py``.

A form's module has ``unsupported(vector) -> str | None`` (a feature that it reads off the vector and does not play yet)
and ``run(vector, tmp_path)``, plain or async; that of a form with framings is given ``framing=`` as well, and one that names
``SERVICES`` (fixtures) is given each of them by its name.
"""

import asyncio
import inspect

import pytest

from .values import form_module


def test_vector(case, tmp_path, record_property, request):
    """The product makes of this input what the vector says."""
    vector = case.vector
    form = vector["form"]
    record_property("casebook_form", form)
    module = form_module(form)
    if module is None:
        pytest.skip(f"form {form} is not supported yet")
    if reason := module.unsupported(vector):
        pytest.skip(reason)
    given = {name: request.getfixturevalue(name) for name in getattr(module, "SERVICES", ())}
    if case.framing:
        given["framing"] = case.framing
    if inspect.iscoroutinefunction(module.run):
        asyncio.run(module.run(vector, tmp_path, **given))
    else:
        module.run(vector, tmp_path, **given)
