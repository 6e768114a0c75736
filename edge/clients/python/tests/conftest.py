"""What the client's tests share."""

import hypothesis
import pytest

# How long an example takes is the machine's affair: a property is not a benchmark.
hypothesis.settings.register_profile("any-machine", deadline=None)
hypothesis.settings.load_profile("any-machine")


@pytest.fixture(params=[True, False], ids=["blocking", "async"])
def blocking(request):
    return request.param
