"""The JSON Schema that editors use: it accepts what loads and refuses what does not."""

from pathlib import Path

import config_strategies as strategies
import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as effort

from attnctl.inputs.config.form import json_schema
from attnctl.inputs.config.settings import IN_ORDER, OF_ARRAYS, Settings

HERE = Path(__file__).parent
CONFIGS = sorted([*(HERE.parent.parent / "configs").glob("*.yaml"), *(HERE / "written").glob("*.yaml")])

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def properties(schema):
    """Every (name, schema of a key), at every depth."""
    for inner in [schema, *schema["$defs"].values()]:
        yield from inner["properties"].items()


def test_it_is_a_json_schema_and_says_which():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"] == "attnctl config"


def test_every_key_is_described_for_people():
    described = {name: schema.get("description", "") for name, schema in properties(SCHEMA)}
    assert set(described) >= {"sentence", "heads", "W_Q", "b_O", "seed", "theta", "window", "split", "file"}
    assert [name for name, text in described.items() if not text.endswith(".")] == []


ELSEWHERE = {"mask", "bias", *OF_ARRAYS, "max_memory", "where", "named"}
"""Settings that are written as rules, or not at all."""


def test_it_knows_every_setting_and_its_default():
    assert list(SCHEMA["properties"]) == [name for name in IN_ORDER if name not in ELSEWHERE]
    defaults = {name: key["default"] for name, key in SCHEMA["properties"].items() if "default" in key}
    assert defaults == Settings().to_dict()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_are_valid(path):
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@effort(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.settings)
def test_whatever_settings_write_is_valid(settings):
    VALIDATOR.validate(plain(settings.to_dict()))


def plain(value):
    """As JSON would carry it: minus infinity is a string, an open side is null."""
    match value:
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case _:
            return "-Infinity" if value == float("-inf") else value


@pytest.mark.parametrize(
    "text",
    [
        "sentense: a",
        "heads: 0",
        "heads: 2.5",
        "heads: two",
        "seed: -1",
        "seed: 4294967296",
        "tokenizer: {split: letters}",
        "tokenizer: words",
        "embeddings: 5",
        "embeddings: {I: x}",
        "embeddings: {random: {sed: 1}}",
        "positions: rop",
        "positions: {rope: {dims: 3}}",
        "positions: {rope: {}, learned: [[1]]}",
        "weights: {W_Q: [1, 2]}",
        "weights: {W_Q: [[1, x]]}",
        "weights: {W_Q: none}",
        "weights: {b_Q: identity}",
        "weights: {heads: [{W_O: identity}]}",
        "rules: causal",
        "rules: [causl]",
        "rules: [{window: -1}]",
        "rules: [{softcap: 0}]",
        "rules: [{mask: [[2]]}]",
        "rules: [{window: 1, softcap: 1}]",
        "vocab: {I: -1}",
        "dtype: int8",
    ],
)
def test_what_does_not_load_is_not_valid(text):
    assert not VALIDATOR.is_valid(yaml.safe_load(text))
