"""Prints what was planted against what was named."""

import pytest

TABLE = pytest.StashKey[dict]()


@pytest.fixture
def planted_table(request):
    """mistake -> what `check` said, a word a case."""
    return request.config.stash.setdefault(TABLE, {})


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash.get(TABLE, {})
    if not table:
        return
    terminalreporter.section("planted against named")
    width = max(map(len, table))
    for planted, named in table.items():
        counts = {name: named.count(name) for name in dict.fromkeys(named)}
        said = ", ".join(f"{name} {count} of {len(named)}" for name, count in counts.items())
        terminalreporter.line(f"{planted:{width}}  {said}")
