"""Writing a config and reading it back, in our reader and in others."""

from pathlib import Path

import config_strategies as strategies
import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as effort

from attnctl.inputs.config.fields import FIELDS
from attnctl.inputs.config.flags import write_commented
from attnctl.inputs.config.form import validate
from attnctl.inputs.config.load import parse_config
from attnctl.inputs.config.settings import FromFile, Random, Settings, Tokenizer, Weights
from attnctl.math.kind import HeadNorm
from attnctl.math.rules import Causal, Softcap, Window

HERE = Path(__file__).parent


def read_back(text):
    return parse_config(text.encode(), "x.yaml", Path())


calm = effort(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@calm
@given(strategies.settings)
def test_plain_data_gives_the_same_settings(settings):
    assert validate(settings.to_dict()) == settings


@calm
@given(strategies.settings)
def test_a_written_config_gives_the_same_settings(settings):
    assert read_back(write_commented(settings)) == settings


@calm
@given(strategies.settings)
def test_any_yaml_reader_reads_the_same_words_and_numbers(settings):
    read = yaml.load(write_commented(settings), Loader=yaml.CSafeLoader) or {}
    expected = settings.to_dict()
    for name in ("sentence", "context", "vocab", "scale", "embeddings"):
        if name in read:
            assert read[name] == expected[name]


SETTINGS = {
    "sentence": Settings(sentence="I love AI"),
    "everything": Settings(
        sentence="Cats: chase mice, no?",
        vocab=("no", "1.0", "null", "a: b", "-x", "#", "\U0001f600", "\x1b", "[PAD]", "I love"),
        tokenizer=Tokenizer("words", lowercase=True),
        d_model=2,
        heads=2,
        seed=7,
        embeddings={"no": [1.0, 1e-05], "a: b": [0.1, 1e300]},
        weights=Weights(
            {
                "W_Q": [[0.1, 0.2], [0.30000000000000004, -0.4]],
                "W_O": "none",
                "W_V": FromFile("w.npz", "V"),
            },
            ({"W_K": "identity"}, {"W_K": [[1.0], [2.0]], "b_K": [0.5]}),
        ),
        rules=(Causal(), Window(3, None), Softcap(30.0)),
        qk_norm=HeadNorm(eps=1e-5, over="heads", after_rotation=True),
        cache_unrotated=True,
        mask=[[1, 0], [1, 1]],
        bias=[[0.0, float("-inf")], [0.5, 0.0]],
    ),
    "textbook": Settings(
        sentence="India is great",
        weights=Weights(random=Random(1, "uniform", "per_head", "numpy_legacy")),
    ),
}


def what_is_set(text):
    """A written config without the keys that are there as examples, behind a #."""
    head, *blocks = text.rstrip("\n").split("\n\n")
    chosen = [each for each in blocks if not each.splitlines()[-1].startswith("# ")]
    return "\n\n".join([head, *chosen]) + "\n"


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_person_gets_to_edit(name):
    expected = (HERE / "written" / f"{name}.yaml").read_text(encoding="utf-8")
    assert what_is_set(write_commented(SETTINGS[name])) == expected
    assert read_back(expected) == SETTINGS[name]


ELSEWHERE = {"mask", "bias", "max_memory", "where"}
"""Settings that are written as rules, or not at all."""


def test_every_example_behind_a_hash_may_be_uncommented():
    lines = write_commented(Settings()).splitlines()
    keys = [
        line[2:]
        for line in lines
        if line.startswith("# ") and line[2:].split(":")[0] in Settings().__dict__
    ]
    assert len(keys) == len(FIELDS)
    for line in keys:
        read_back(line)
    read_back("\n".join(keys))
