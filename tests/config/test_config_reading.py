"""What a config means: words stay words, numbers are numbers, every form of every key."""

from math import inf
from pathlib import Path

import numpy as np
import pytest
import yaml

from attnctl.base.errors import AttnError
from attnctl.base.values import BadValueError, Plain
from attnctl.inputs.config import yaml as reader
from attnctl.inputs.config.load import load, parse_config
from attnctl.inputs.config.settings import FromFile, Random, Settings, Tokenizer, Weights
from attnctl.inputs.config.tensors import BIAS, MASK, MATRIX, VECTOR
from attnctl.inputs.plan.sentence import prepare
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Alibi, Causal, Softcap, Window

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def settings(text):
    return parse_config(text.encode(), "x.yaml", Path())


@pytest.fixture(params=["libyaml", "pure Python"])
def parser(request, monkeypatch):
    """Both of PyYAML's parsers; the second is all there is where libyaml is missing."""
    if request.param == "pure Python":
        monkeypatch.delattr(yaml, "CSafeLoader")


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# nothing\n", {}),
        ("---\n", {}),
        ("\ufeffa: b\n", {"a": "b"}),
        ("a: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("%YAML 1.2\n---\na: b\n", {"a": "b"}),
        ("no: on\n1: 12:30\nnull: ~\n", {"no": "on", "1": "12:30", "null": "~"}),
        ("[no, on, 1.0, null, 12:30, 0x1F, 2001-01-01]",
         ["no", "on", "1.0", "null", "12:30", "0x1F", "2001-01-01"]),
        ("a:\n- b\n- - c\n  - d\n", {"a": ["b", ["c", "d"]]}),
        ("? a\n: b\n", {"a": "b"}),
        ("a: &x [1, 2]\nb: *x\n", {"a": ["1", "2"], "b": ["1", "2"]}),
        ("a: &x 4\nb: *x\n", {"a": "4", "b": "4"}),
        ("a: !!str 1\nb: !!int 2\nc: ! d\ne: !!seq [1]\n", {"a": "1", "b": "2", "c": "d", "e": ["1"]}),
        ('a: "\\U0001F600\\x1b"\n', {"a": "\U0001f600\x1b"}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
    ],
)  # fmt: skip
def test_yaml_becomes_mappings_lists_and_text(text, expected):
    data, repeated = reader.read(reader.decode(text.encode(), "x.yaml"), "x.yaml")
    assert data == expected
    assert repeated == []


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("[a]", True),
        ("['a']", False),
        ('["a"]', False),
        ("- |\n  a", False),
        ("[!!str a]", False),
        ("[!!float a]", True),
    ],
)
def test_only_what_has_no_quotes_is_plain(text, plain):
    data, _ = reader.read(text, "x.yaml")
    assert isinstance(data[0], Plain) == plain


@pytest.mark.usefixtures("parser")
def test_a_character_that_yaml_forbids_is_named():
    with pytest.raises(AttnError, match=r"^x.yaml:2: U\+0000 may not stand in YAML; remove it, or write "):
        settings("a: b\nc: \0\n")


@pytest.mark.usefixtures("parser")
def test_every_place_knows_its_line_or_the_nearest_above_it():
    text = "a:\n- 1\n- [2,\n   3]\nb: &x\n  c: 1\nd: *x\na: {f: 1}\n"
    expected = {
        (): 1, ("a",): 1, ("a", 0): 2, ("a", 1): 3, ("a", 1, 1): 4, ("a", 7): 1, ("a", "f"): 1,
        ("b", "c"): 6, ("d",): 7, ("d", "c"): 6, ("e", 1): 1,
    }  # fmt: skip
    assert reader.line_numbers(text, expected) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0.0),
        ("-1", -1.0),
        ("+1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-0.0", 0.0),
        ("1e-05", 1e-05),
        ("1E5", 100000.0),
        ("0.1", 0.1),
        ("1.7976931348623157e+308", 1.7976931348623157e308),
        ("123456789012345678901234567890", 1.2345678901234568e29),
    ],
)
def test_numbers_are_those_of_yaml_and_json(text, value):
    assert VECTOR([Plain(text)]) == [value]
    assert all(type(number) is float for number in VECTOR([Plain(text)]))


@pytest.mark.parametrize(
    "text",
    ["010", "-01", "0o17", "0x1F", "0b1", "1_000", "12:30", "1,5", "1, 2", "1 2", "1e", "e5", ".", "-", "+",
     "--1", "1e999", "9" * 5000, ".inf", "-.Inf", ".nan", "nan", "Infinity", "-inf", "true", "no", "null",
     "~", "", "x", "1], [2", "1, [[[", "１", "1\u00a0"],
)  # fmt: skip
def test_what_is_no_number_is_refused_alone_and_within_a_row(text):
    for row, at in [([text], 0), (["1", text, "2"], 1)]:
        with pytest.raises(BadValueError) as caught:
            VECTOR(list(map(Plain, row)))
        assert [path for path, _ in caught.value.problems] == [(at,)]


def test_quoted_numbers_and_python_truth_values_are_no_numbers():
    for cell in ("1", True, None, [1.0], inf, -inf, 10**400):
        with pytest.raises(BadValueError):
            VECTOR([1.0, cell])


def test_a_matrix_is_made_of_floats_whatever_it_was_written_as():
    rows = MATRIX([[Plain("1"), Plain("2")], [Plain(".5"), Plain("1e-3")], [1, 2.5]])
    assert rows == [[1.0, 2.0], [0.5, 0.001], [1.0, 2.5]]
    assert {type(cell) for row in rows for cell in row} == {float}


def test_masks_take_truth_values_and_biases_minus_infinity():
    assert MASK([list(map(Plain, ["1", "0", "true", "False", "1.0"])), [True, False, 0, 1.0, 0.0]]) == [
        [1, 0, 1, 0, 1],
        [1, 0, 0, 1, 0],
    ]
    assert BIAS([[Plain("-.inf"), "-Infinity", -inf, Plain("0.5")]]) == [[-inf, -inf, -inf, 0.5]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Settings()),
        ("sentence: no", Settings(sentence="no")),
        ("sentence: 12", Settings(sentence="12")),
        ("vocab: [no, on, 1.0, null, 12:30]", Settings(vocab=("no", "on", "1.0", "null", "12:30"))),
        ("vocab: {love: 1, I: 0, no: 2}", Settings(vocab=("I", "love", "no"))),
        ("tokenizer: {split: words}", Settings(tokenizer=Tokenizer("words"))),
        ("tokenizer: {lowercase: True}", Settings(tokenizer=Tokenizer(lowercase=True))),
        ("heads: 2\nseed: 4294967295", Settings(heads=2, seed=2**32 - 1)),
        ("embeddings: {no: [1], 1.0: [2]}", Settings(embeddings={"no": [1.0], "1.0": [2.0]})),
        ("embeddings: {random: [1, 2]}", Settings(embeddings={"random": [1.0, 2.0]})),
        ("embeddings: {file: [1], name: [2]}", Settings(embeddings={"file": [1.0], "name": [2.0]})),
        ("embeddings: [[1, 2]]", Settings(embeddings=[[1.0, 2.0]])),
        ("embeddings: identity", Settings(embeddings="identity")),
        ("embeddings: {random: {seed: 1}}", Settings(embeddings=Random(1, "standard_normal"))),
        ("embeddings: {file: x.npz}", Settings(embeddings=FromFile("x.npz"))),
        ("positions: sinusoidal", Settings(positions="sinusoidal")),
        ("positions: none", Settings()),
        ("positions: rope", Settings(positions=Rotary())),
        ("positions: {rope: {}}", Settings(positions=Rotary())),
        ("positions: {rope: {theta: 500000, dims: 4, interleaved: true}}",
         Settings(positions=Rotary(500000.0, 4, True))),
        ("positions: {learned: [[1, 2]]}", Settings(positions=[[1.0, 2.0]])),
        ("positions: alibi", Settings(rules=(Alibi(),))),
        ("positions: alibi\nrules: [alibi]", Settings(rules=(Alibi(),))),
        ("weights: {W: [[1]], W_O: none, b_Q: [1]}",
         Settings(weights=Weights({"W": [[1.0]], "W_O": "none", "b_Q": [1.0]}))),
        ("weights: {W_Q: {random: {distribution: uniform}}}",
         Settings(weights=Weights({"W_Q": Random(distribution="uniform")}))),
        ("weights: {W_Q: {file: w.npz, name: 1}}",
         Settings(weights=Weights({"W_Q": FromFile("w.npz", "1")}))),
        ("weights: {random: {seed: 1, layout: per_head, stream: numpy_legacy}}",
         Settings(weights=Weights(random=Random(1, layout="per_head", stream="numpy_legacy")))),
        ("weights: {heads: [{W_Q: [[1]]}, {W_Q: identity}]}",
         Settings(weights=Weights(heads=({"W_Q": [[1.0]]}, {"W_Q": "identity"})))),
        ("weights: {W_Q: &w [[1, 2]], W_K: *w}",
         Settings(weights=Weights({"W_Q": [[1.0, 2.0]], "W_K": [[1.0, 2.0]]}))),
        ("rules: [causal, {softcap: 30}]", Settings(rules=(Causal(), Softcap(30.0)))),
        ("rules: [{window: 3}]", Settings(rules=(Window(3, 3),))),
        ("rules: [{window: [3, inf]}]", Settings(rules=(Window(3, None),))),
        ("rules: [{window: [.inf, null]}]", Settings(rules=(Window(None, None),))),
        ("rules: [{window: [1, inf]}, {softcap: 2}]", Settings(rules=(Window(1, None), Softcap(2.0)))),
        ("rules: [{mask: [[1, false]]}, {bias: [[-.inf, 1]]}]",
         Settings(mask=[[1, 0]], bias=[[-inf, 1.0]])),
        ("edits: [scores=1, 2]\nrenormalize: true", Settings(edits=("scores=1", "2"), renormalize=True)),
        ("causal_offset: -2\nscale: 1\ndtype: float16",
         Settings(causal_offset=-2, scale=1.0, dtype="float16")),
    ],
)  # fmt: skip
def test_each_form_of_each_key(text, expected):
    assert settings(text) == expected


def test_relative_files_are_looked_for_beside_the_config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("embeddings: {file: e.npz}\nweights: {W_O: {file: /data/w.npz}}\n")
    loaded = load(path)
    assert loaded.embeddings == FromFile(str(tmp_path / "e.npz"))
    assert loaded.weights.tensors["W_O"] == FromFile("/data/w.npz")


def test_one_matrix_of_a_file_for_q_k_and_v(tmp_path):
    np.save(tmp_path / "w.npy", np.eye(4)[::-1])
    path = tmp_path / "run.yaml"
    path.write_text("sentence: I love AI\nweights: {W: {file: w.npy}}\n")
    trace = prepare(load(path)).run()
    for name in ("Q", "K", "V"):
        np.testing.assert_array_equal(trace[name], trace["X"][None, :, ::-1])


def test_weights_of_a_file_are_used_but_for_those_written_out(tmp_path):
    first, last = np.eye(4)[::-1], 2 * np.eye(4)
    np.savez(tmp_path / "w.npz", W_Q=first, W_K=first, junk=first)
    path = tmp_path / "run.yaml"
    path.write_text(f"sentence: I love AI\nd_model: 4\nweights: {{file: w.npz, W_K: {last.tolist()}}}\n")
    trace = prepare(load(path)).run()
    np.testing.assert_array_equal(trace["Q"], trace["X"][None] @ first)
    np.testing.assert_array_equal(trace["K"], trace["X"][None] @ last)


def test_a_config_may_come_on_stdin(monkeypatch):
    class Stdin:
        buffer = (HERE / "problems" / "keys.yaml").open("rb")

    monkeypatch.setattr("sys.stdin", Stdin)
    with pytest.raises(Exception, match=r"^<stdin>:2 \$\.sentense: unknown key"):
        load("-")
    Stdin.buffer.close()


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configs_that_come_with_it_load(path):
    assert load(path).sentence
