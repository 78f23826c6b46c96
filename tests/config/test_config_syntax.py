"""What is said of a text that is not YAML: in our words, with both parsers."""

from pathlib import Path

import pytest
import yaml

from attnctl.base.errors import AttnError
from attnctl.inputs.config.load import parse_config

TEXTS = {
    "a: b: c\n": "1: a colon where no key may stand",
    "a:1\nb: 2\n": "2: a colon where no key may stand",
    "a: 1\n b: 2\n": "2: a colon where no key may stand",
    "a: [1, 2\n": "2: a comma or ] is missing",
    "a: [1, [2, 3]\nb: 1\n": "2: a comma or ] is missing",
    "a: {b: 1\nc: 2\n": "2: a comma or } is missing",
    "rules: [causal, {window: 3]\n": "1: a comma or } is missing",
    "a:\n  b: 1\n c: 2\n": "3: indented unlike the lines before it",
    "a: 1\n- b\n": "2: indented unlike the lines before it",
    "a: 'x\n": "2: a quote is not closed",
    "a: 'it's'\n": "1: text behind a value that has ended",
    'a: 1\nb: "x" y\n': "2: text behind a value that has ended",
    'a: "x\\q"\n': "1: not YAML: ",
    'a: "\\u12"\n': "1: not YAML: ",
    "a: @x\n": "1: not YAML: ",
    "a: *\n": "1: not YAML: ",
    "a: - 1\n": "1: not YAML: ",
    "a: [1,, 2]\n": "1: not YAML: ",
    "a: ]\n": "1: not YAML: ",
    "a: |x\n y\n": "1: not YAML: ",
    "a: 1\nb\n": "3: a key without its colon",
    "a: !foo!bar x\n": "1: not YAML: ",
    "%YAML 3.0\n---\na: 1\n": "1: not YAML: ",
    "--- a\n... b\n": "2: not YAML: ",
    "a: 1\n\tb: 2\n": "2: a tab where YAML wants spaces",
}


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("parser", ["libyaml", "pure"])
def test_syntax_errors_are_told_in_our_words(monkeypatch, text, parser):
    if parser == "pure":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    with pytest.raises(AttnError) as caught:
        parse_config(text.encode(), "x.yaml", Path())
    (problem,) = caught.value.problems
    assert problem.startswith(f"x.yaml:{TEXTS[text]}")
    assert ";" in problem  # what to write instead


def test_what_stands_at_the_wrong_place_is_told_with_all_the_rest():
    text = """\
haeds: 2
causal: true
window: 3
theta: 5
lowercase: true
d_model: 4
W_Q: [[1]]
weights:
  W_Q: [[1, 2], [3, 4]]
  heads: [{W_K: [[1], [2], [3]]}]
"""
    with pytest.raises(AttnError) as caught:
        parse_config(text.encode(), "x.yaml", Path())
    assert caught.value.problems == (
        "x.yaml:1 $.haeds: unknown key; did you mean heads?",
        "x.yaml:2 $.causal: not a key of its own; write rules: [causal]",
        "x.yaml:3 $.window: not a key of its own; write rules: [{window: [3, 0]}]",
        "x.yaml:4 $.theta: not a key of its own; write positions: {rope: {theta: …}}",
        "x.yaml:5 $.lowercase: not a key of its own; write tokenizer: {lowercase: …}",
        "x.yaml:7 $.W_Q: not a key of its own; write weights: {W_Q: …}",
        "x.yaml:9 $.weights.W_Q: 2 × 2, expected 4 rows (d_model)",
        "x.yaml:10 $.weights.heads[0].W_K: 3 × 1, expected 4 rows (d_model)",
    )


def test_rows_of_embeddings_say_what_a_matrix_must_fit():
    text = "heads: two\nembeddings: {I: [1, 2, 3]}\nweights: {W_V: [[1]]}\n"
    with pytest.raises(AttnError) as caught:
        parse_config(text.encode(), "x.yaml", Path())
    assert caught.value.problems[1] == "x.yaml:3 $.weights.W_V: 1 × 1, expected 3 rows (d_model)"
