"""Files that several tests of the command line read."""

import pytest


@pytest.fixture
def three(call):
    """A file of three traces: I love AI, we, I love AI too."""
    (call("run", "I love AI", "we", "I love AI too", "--heads", "2", "-o", "s.jsonl"))
    return call
