"""What is said of a config that is wrong: every problem at once, each with its line and path."""

from pathlib import Path

import pytest

from attnctl.base.errors import AttnError
from attnctl.base.values import flow
from attnctl.inputs.config.fields import FIELDS, RULE_SETTINGS
from attnctl.inputs.config.form import validate
from attnctl.inputs.config.load import load, parse_config

HERE = Path(__file__).parent
PROBLEMS = sorted((HERE / "problems").glob("*.yaml"))

RULES = sorted(RULE_SETTINGS, key=lambda each: not each.switch)
EVERY = {
    "[every rule]": [flow(each.in_config) for each in RULES],
    "[every rule's key]": [each.name for each in RULES if not each.switch],
    "[every key]": list(FIELDS),
}
"""What stands in the expected messages for a list of all that there are."""

GOES_ON = " (in what begins on line 1)"
ALIKE = (
    'a colon where no key may stand; put text with ": " in quotes, and begin keys that belong '
    "together in the same column"
)


def problems_in(text):
    with pytest.raises(AttnError) as caught:
        parse_config(text if isinstance(text, bytes) else text.encode(), "x.yaml", Path())
    return list(caught.value.problems)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_every_problem_has_its_line_path_and_remedy(path):
    expected = path.with_suffix(".txt").read_text(encoding="utf-8")
    for what, names in EVERY.items():
        expected = expected.replace(what, f"{', '.join(names[:-1])} or {names[-1]}")
    with pytest.raises(AttnError) as caught:
        parse_config(path.read_bytes(), path.name, HERE)
    assert list(caught.value.problems) == expected.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: 2\n",
         "2: a comma or ] is missing; write a list like [1, 2] (in what begins on line 1)"),
        ("a:\n\t- 1\n",
         "2: a tab where YAML wants spaces; indent with spaces"),
        ('sentence: "I love\n',
         "2: a quote is not closed; end the text with the quote that it begins with" + GOES_ON),
        ("a: b: c\n",
         f"1: {ALIKE}"),
        ("a: 1\n---\nb: 2\n", "2: a second document begins (---); a config is one document"),
        ("a: 1\n? [b]\n: 2\n", "2: a key must be a plain word, not a list, a mapping or an alias"),
        ("a: &k b\n*k : 1\n", "2: a key must be a plain word, not a list, a mapping or an alias"),
        ("a: 1\nb: *c\n", "2: *c is used before or within what &c names"),
        ("a: &a [1, *a]\n", "1: *a is used before or within what &a names"),
        ("a: 1\nb: !!python/name:os.system x\n",
         "2: the tag '!!python/name:os.system' has no meaning in a config; remove it"),
        ("a: !secret x\n", "1: the tag '!secret' has no meaning in a config; remove it"),
        ("a: !!map [1]\n", "1: the tag '!!map' has no meaning in a config; remove it"),
        ("%TAG ! tag:x\n---\na: 1\n", "1: %TAG has no meaning in a config; remove the line"),
        (b"a: 1\nb: caf\xe9\n", "2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("a: 1\n\nb: \x00\n",
         '3: U+0000 may not stand in YAML; remove it, or write "\\u0000"'),
        ("a: " + "[" * 65 + "]" * 65, "1: nested more than 64 deep; a config needs four levels"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_yaml_is_refused_at_its_line(text, expected):
    assert problems_in(text) == [f"x.yaml:{expected}"]


def test_aliases_may_not_multiply():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert problems_in(bomb) == ["x.yaml:6: aliases stand for more than 1,000,000 values; write less"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"\\0": 1', "x.yaml:1 $['\\x00']: unknown key; use sentence, "),
        ('embeddings: {"\\0rows": [x]}', "x.yaml:1 $.embeddings['\\x00rows'][0]: x is not a number"),
        (
            'embeddings: {"\\0random": 1, random: {}}',
            "x.yaml:1 $.embeddings['\\x00random']: unknown key",
        ),
    ],
)
def test_keys_that_look_like_the_names_of_forms(text, expected):
    assert problems_in(text)[0].startswith(expected)


def test_of_very_many_problems_the_first_are_listed():
    problems = problems_in("".join(f"key{i}: 1\n" for i in range(1000)))
    assert len(problems) == 51
    assert problems[0].startswith("x.yaml:1 $.key0: unknown key")
    assert problems[-1] == "… and more like these"


def test_of_a_matrix_of_problems_the_first_are_listed():
    row = f"[{', '.join(['x'] * 30)}]"
    problems = problems_in(f"embeddings: [{row}, {row}, {row}]")
    assert len(problems) == 51
    assert problems[29].startswith("x.yaml:1 $.embeddings[0][29]: x is not a number")
    assert problems[30].startswith("x.yaml:1 $.embeddings[1][0]: x is not a number")


def test_a_long_value_is_shortened_and_what_would_steer_a_terminal_is_escaped():
    assert problems_in(f"heads: {'x' * 500}\n") == [
        f"x.yaml:1 $.heads: {'x' * 39}… is not a whole number; write one like 4"
    ]
    assert problems_in("heads: \u202ex\n") == [
        'x.yaml:1 $.heads: "\\u202ex" is not a whole number; write one like 4'
    ]
    assert problems_in('"\\e[31m": 1\n')[0].startswith("x.yaml:1 $['\\x1b[31m']: unknown key")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("heads",), "x.yaml:2 $.heads"),
        (("weights", "W_Q", 1), "x.yaml:6 $.weights.W_Q[1]"),
        (("weights", "W_Q", 1, 0), "x.yaml:6 $.weights.W_Q[1][0]"),
        (("weights", "W_K"), "x.yaml:3 $.weights.W_K"),
        (("embeddings", "a b"), "x.yaml:8 $.embeddings['a b']"),
        (("rules", "mask"), "x.yaml:11 $.rules[1].mask"),
        (("rules", "bias"), "x.yaml:9 $.rules.bias"),
        (("d_model",), "x.yaml:1 $.d_model"),
    ],
)
def test_settings_know_where_each_value_was_written(path, expected):
    text = (
        "# comment\nheads: 2\nweights:\n  W_Q:\n    - [1, 2]\n    - [3, 4]\n"
        "embeddings:\n  a b: [1, 2]\nrules:\n- causal\n- mask: [[1]]\n"
    )
    settings = parse_config(text.encode(), "x.yaml", Path())
    assert settings.where(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("missing.yaml", "missing.yaml: no such file; `attnctl config init -o missing.yaml` writes one"),
        (".", ".: Is a directory; give the path of a YAML file"),
        ("a\0b", "a\0b: embedded null byte; give the path of a YAML file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(path, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AttnError) as caught:
        load(path)
    assert list(caught.value.problems) == [expected]


def test_a_file_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(AttnError, match=r"large.yaml: more than 64 MiB; keep large matrices in a \.npz"):
        load(path)


@pytest.mark.parametrize("separator", [",", "\n", "\r", "\u2028"])
def test_a_text_of_too_many_values_is_refused(separator):
    assert problems_in("#" + separator * 4_000_001)[0].startswith(
        "x.yaml: more than 4,000,000 values; keep "
    )


def test_memory_that_runs_out_is_an_error_of_the_file(monkeypatch):
    def read(text, name):
        raise MemoryError

    monkeypatch.setattr("attnctl.inputs.config.yaml.read", read)
    assert problems_in("") == ["x.yaml: more than fits into memory; keep matrices in a .npz file"]


def test_plain_data_is_held_to_the_same_rules():
    data = {"heads": "4", "d_model": 4.0, "weights": {"W_Q": [[1, True]], "W_K": [[float("nan")]]}}
    with pytest.raises(AttnError) as caught:
        validate(data, lambda path: "/".join(map(str, path)))
    assert list(caught.value.problems) == [
        "d_model: 4.0 is not a whole number; write one like 4",
        'heads: "4" is not a whole number but text, because of its quotes; write one like 4',
        "weights/W_Q/0/1: true is not a number but a truth value; write one like 0.5",
        "weights/W_K/0/0: nan is not a finite number; write one like 0.5",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"\ud83d": 1}, "$: a key that is no text; write a word"),
        ({1: 2}, "$[1]: a key that is no text; write a word"),
        ({"embeddings": {1: [1]}}, "$.embeddings[1]: 1 is not text"),
        ({"sentence": "\ud83d"}, '$.sentence: "\\ud83d" holds half of a character; write the whole'),
        ({"heads": 10**5000}, "$.heads: a number of more than 40 digits is too large"),
        ({"scale": 10**400}, "$.scale: a number of more than 40 digits is not a finite number"),
        ({"weights": None}, "$.weights: null is not a mapping; write keys and values, like W: …"),
        ([], "$: a list is not a mapping; write keys and values, like sentence: …"),
        ({"tokenizer": {"lowercase": 1}}, "$.tokenizer.lowercase: 1 is not a truth value"),
    ],
)
def test_plain_data_may_be_odder_than_yaml(data, expected):
    with pytest.raises(AttnError) as caught:
        validate(data)
    (problem,) = caught.value.problems
    assert problem.startswith(expected)
