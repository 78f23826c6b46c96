"""A model for corpora."""

import pytest
from corpora import WordIds, model_in

from attnctl.models import tokens


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A tiny trained model whose tokenizer needs no package."""
    monkeypatch.setattr(tokens, "load", lambda folder: WordIds())
    return str(model_in(tmp_path / "model"))
