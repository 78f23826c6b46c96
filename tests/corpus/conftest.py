"""A model for corpora."""

import pytest
from corpora import WordIds, model_in

from attnctl.cli.program import program
from attnctl.models import source


@pytest.fixture
def word_ids(monkeypatch):
    """A tokenizer of every model that needs no package."""
    monkeypatch.setattr(source, "load_tokenizer", lambda folder: WordIds())


@pytest.fixture
def model(tmp_path, word_ids):
    """A tiny trained model whose tokenizer needs no package."""
    return str(model_in(tmp_path / "model"))


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command line in a folder of its own: its exit code, what it printed and complained of."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = program(["corpus", *map(str, args)])
        return (int(code), *capsys.readouterr())

    return run
