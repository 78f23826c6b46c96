"""A setting is said once: its flag, its keyword and its line of a config ask for the same run."""

import json
import shlex
from io import StringIO
from pathlib import Path

import pytest
from setting_values import ways, with_flags

import attnctl
from attnctl.cli.program import program
from attnctl.inputs.config.fields import FIELDS, KEYWORDS, SETTABLE
from attnctl.inputs.config.flags import flags
from attnctl.inputs.config.load import parse_config
from attnctl.inputs.config.settings import IN_ORDER, OF_ARRAYS, Settings
from attnctl.math.rules import RULES

SENTENCE_TEXT = "to be or not to be"
TOGETHER = [
    (
        "--documents 0,2 --positions-run-on --positions sinusoidal",
        {"documents": [0, 2], "positions_run_on": True, "positions": "sinusoidal"},
        "{rules: [{documents: [0, 2]}], positions_run_on: true, positions: sinusoidal}",
    ),
    ("--window 1,inf", {"window": (1, None)}, "rules: [{window: [1, inf]}]"),
    ("--window 2", {"window": 2}, "rules: [{window: 2}]"),
    ("--positions rope", {"positions": "rope"}, "positions: rope"),
    (
        "--positions rope --theta 50 --rotary-dims 2 --interleaved",
        {"positions": {"rope": {"theta": 50, "dims": 2, "interleaved": True}}},
        "positions: {rope: {theta: 50, dims: 2, interleaved: true}}",
    ),
    ("--heads 2 --kv-heads 1", {"heads": 2, "kv_heads": 1}, "{heads: 2, kv_heads: 1}"),
    ("--qk-norm layer", {"qk_norm": "layer"}, "qk_norm: layer"),
    (
        "--qk-norm rms --qk-norm-eps 1e-5 --qk-norm-over heads --qk-norm-plus-one --qk-norm-after-rotation",
        {"qk_norm": {"eps": 1e-5, "over": "heads", "plus_one": True, "after_rotation": True}},
        "qk_norm: {kind: rms, eps: 1e-5, over: heads, plus_one: true, after_rotation: true}",
    ),
    ("--chunks 0:4,4:6", {"chunks": [(0, 4), (4, 6)]}, "chunks: 0:4,4:6"),
    ("--tokenizer words --lowercase",
     {"tokenizer": {"split": "words", "lowercase": True}},
     "tokenizer: {split: words, lowercase: true}"),
    ("--causal --causal-offset 1",
     {"causal": True, "causal_offset": 1},
     "{rules: [causal], causal_offset: 1}"),
    (
        "--edit=X*=2 --edit=attention_weights[0,0,0]=1 --renormalize",
        {"edits": ["X*=2", "attention_weights[0,0,0]=1"], "renormalize": True},
        '{edits: ["X*=2", "attention_weights[0,0,0]=1"], renormalize: true}',
    ),
]  # fmt: skip

NOT_ALONE = {
    "--cache-unrotated": "no sentence has a cache (tests/cli/test_padding_and_arrays.py)",
    "--causal-offset": "above, with the rule",
    "--cotangent": "gradients begin with it (tests/cli/test_backward_cli.py)",
    "--positions-run-on": "above, with documents",
    "--kv-heads": "above, with the heads that share them",
    "--renormalize": "above, with an edit",
    "--rules-by-positions": "a config or a file gives positions (test_config_position_ids.py)",
}
"""The flags that say nothing without another one."""

ALONE = {name: ways(each) for name, each in with_flags().items() if name not in NOT_ALONE}


def run_by_flags(words):
    out = StringIO()
    assert (
        program(["run", SENTENCE_TEXT, "--json", *shlex.split(words)], stdout=out, stderr=StringIO()) == 0
    )
    return json.loads(out.getvalue())


@pytest.mark.parametrize(
    ("words", "keywords", "config"), [*TOGETHER, *ALONE.values()], ids=lambda value: str(value)[:30]
)
def test_flags_keywords_and_a_config_ask_for_the_same(words, keywords, config):
    dump = run_by_flags(words)
    by_keywords = attnctl.run(SENTENCE_TEXT, **keywords)
    by_config = attnctl.run(SENTENCE_TEXT, parse_config(config.encode(), "x.yaml", Path()))
    assert json.loads(json.dumps(by_keywords.config)) == dump["config"]
    assert by_config.config == by_keywords.config
    assert by_config["output"].tolist() == by_keywords["output"].tolist() == dump["steps"]["output"]["data"]


@pytest.mark.parametrize("config", [config for _, _, config in (*TOGETHER, *ALONE.values())])
def test_settings_spell_the_flags_that_give_them_again(config):
    settings = parse_config(config.encode(), "x.yaml", Path())
    again = run_by_flags(shlex.join(flags(settings, Settings())))
    assert again["config"] == json.loads(json.dumps(attnctl.run(SENTENCE_TEXT, settings).config))


@pytest.mark.parametrize("name", NOT_ALONE)
def test_a_flag_that_says_nothing_alone_is_spelled_too(name):
    flag, _, config = ways(with_flags()[name])
    said = flags(parse_config(config.encode(), "x.yaml", Path()), Settings())
    assert said == shlex.split(flag.replace("=", " ", 1))


@pytest.mark.parametrize("name", ALONE)
def test_every_flag_changes_what_is_asked_for(name):
    assert attnctl.run(SENTENCE_TEXT, **ALONE[name][1]).config != attnctl.run(SENTENCE_TEXT).config


def test_every_setting_is_in_the_table_and_every_rule_under_its_name():
    elsewhere = {"mask", "bias", *OF_ARRAYS, "max_memory", "where", "named"}
    assert list(FIELDS) == [name for name in IN_ORDER if name not in elsewhere]
    assert set(IN_ORDER) == set(Settings.__dataclass_fields__)
    assert [setting.name for setting in SETTABLE] == [name for name, rule in RULES.items() if rule.setting]
    assert all(setting.help.endswith(".") for setting in KEYWORDS.values())


def test_every_keyword_that_is_wrong_is_named():
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.run("I", heads="2", window=(-1, "a"), scale=True, vocab=["a", "a"])
    assert list(caught.value.problems) == [
        'heads: "2" is not a whole number but text, because of its quotes; write one like 4',
        "window[0]: -1 is too small; write 0 or more",
        'window[1]: "a" is not a whole number but text; write one like 4',
        "scale: true is not a number but a truth value; write one like 0.5",
        'vocab[1]: "a" again, after entry 0; a token has one id',
    ]


def test_a_flag_replaces_the_rule_of_a_config_that_is_like_it(tmp_path):
    config = tmp_path / "x.yaml"
    config.write_text("rules: [{window: 1}, causal, {mask: [[1, 1], [1, 1]]}]\n")
    out = StringIO()
    assert program(["run", "to be", "-c", str(config), "--window", "0", "--json"], stdout=out) == 0
    assert json.loads(out.getvalue())["config"]["rules"] == [
        "causal",
        {"window": [0, 0]},
        {"mask": [[1, 1], [1, 1]]},
    ]


def test_a_flag_of_zero_is_given(tmp_path):
    config = tmp_path / "x.yaml"
    config.write_text("{seed: 5, scale: 2, rules: [causal], causal_offset: 1}\n")
    out = StringIO()
    flags = ["--seed", "0", "--scale", "0", "--causal-offset", "0"]
    assert program(["run", "to be", "-c", str(config), *flags, "--json"], stdout=out) == 0
    asked = json.loads(out.getvalue())["config"]
    assert (asked["seed"], asked["scale"], asked["causal_offset"]) == (0, 0.0, 0)
