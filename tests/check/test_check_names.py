"""Files of other people's modules, under the names they have there, are checked with no --name at all."""

import json
from pathlib import Path

import numpy as np
import planted as own
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnctl
from attnctl import AttnError
from attnctl.inputs.arrays.foreign import beside_model, read_foreign

FOREIGN = Path(__file__).parent / "foreign"

ONE_HEAD = """
import numpy as np
(q,
 k, v) = np.random.RandomState(0).standard_normal((3, 4, 8))
for size in (1, 8):
    scores = q @ k.T / np.sqrt(size)
e = np.exp(scores - scores.max(axis=-1, keepdims=True))
weights = e / e.sum(axis=-1, keepdims=True)
context = weights @ v
"""


def test_variables_of_two_axes_are_of_one_head_wherever_they_are_assigned(call):
    Path("p.py").write_text(ONE_HEAD)
    steps = ["Q", "K", "V", "scores", "scaled_scores", "attention_weights", "head_outputs"]
    assert [*json.loads(call("check", "p.py", "--json").out)["steps"]] == steps


@pytest.mark.usefixtures("in_process")
def test_an_attention_whose_arrays_were_too_large_to_keep_is_not_judged(call, monkeypatch):
    monkeypatch.setattr("attnctl.sources.program.record.MOST_NUMBERS", 24)
    Path("p.py").write_text(
        "import numpy as np\nx = np.random.RandomState(0).rand(5, 4)\n"
        "w = np.exp(x @ x.T / 2)\nw /= w.sum(1, keepdims=True)\nout = w @ x\n"
    )
    done = call("check", "p.py")
    assert done.code == 2, done.out


OPTIONS = {
    "torch-mha": {},
    "torch-mha-as-it-comes": {"heads": 4},
    "llama": {"layer": 1, "positions": "rope", "causal": True},
    "bert": {},
    "gpt2": {"causal": True},
    "gpt-neox": {"causal": True, "positions": {"rope": {"dims": 2}}},
    "gpt-oss": {"causal": True, "window": (2, 0)},
    "qwen3": {"causal": True, "positions": "rope", "qk_norm": "rms"},
    "olmo2": {"causal": True, "positions": "rope", "qk_norm": {"eps": 1e-5}},
    "hunyuan": {"causal": True, "positions": "rope", "qk_norm": {"eps": 1e-5, "after_rotation": True}},
    "gemma3": {
        "causal": True,
        "window": (2, 0),
        "scale": 10**-0.5,
        "positions": {"rope": {"theta": 100}},
        "qk_norm": {"plus_one": True},
    },
    "cohere": {
        "causal": True,
        "positions": {"rope": {"theta": 500000, "interleaved": True}},
        "qk_norm": "layer",
    },
}
"""What is asked for of each file that `foreign/make.py` writes."""

STEPS = {
    "torch-mha-as-it-comes": ["output"],  # its weights are averages
    "bert": ["Q", "attention_weights", "head_outputs", "output"],
    "gpt-oss": ["attention_weights", "head_outputs"],
}


def loaded(name):
    return dict(np.load(FOREIGN / f"{name}.npz"))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_real_module_agrees(name):
    report = attnctl.check(loaded(name), **OPTIONS[name])
    assert report.agrees, report.findings
    judged = [step.name for step in report.steps.values() if step.verdict.value == "agrees"]
    assert judged == STEPS.get(name, ["attention_weights", "output"])
    assert any(note.startswith("Read ") for note in report.notes)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_real_module_with_a_wrong_output_does_not(name):
    arrays = loaded(name)
    output = "y" if "y" in arrays else "attn_output"
    arrays[output] = arrays[output] + 0.01 * (np.arange(arrays[output].size) == 3).reshape(
        arrays[output].shape
    )
    report = attnctl.check(arrays, **OPTIONS[name])
    assert (report.agrees, report.first) == (False, STEPS.get(name, ["output"])[-1])
    assert report.gap.differing == 1


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "qwen3", "olmo2", "hunyuan", "gemma3", "cohere"])
def test_attend_computes_what_the_module_did(name):
    arrays = loaded(name)
    heads = {} if "query" in arrays else {"heads": 4, "kv_heads": 2}
    trace = attnctl.attend(arrays, **heads, **OPTIONS[name])
    np.testing.assert_allclose(trace["attention_weights"], arrays["attn_weights"], atol=1e-6)
    found = trace["output"] if heads else trace["head_outputs"].swapaxes(1, 2)
    np.testing.assert_allclose(found, arrays["attn_output"], atol=1e-5)


NORMED = [
    pytest.param("sinks", "gpt-oss"),
    pytest.param("q_norm.weight", "qwen3", marks=pytest.mark.slow),
    pytest.param("q_norm.weight", "cohere", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("lost", "name"), NORMED)
def test_what_a_program_does_not_record_it_is_not_acquitted_of(lost, name):
    arrays = {each: array for each, array in loaded(name).items() if not each.endswith(lost)}
    assert not attnctl.check(arrays, **OPTIONS[name]).agrees


def test_the_command_line_reads_the_names_too(workplace):
    path = FOREIGN / "llama.npz"
    done = workplace.run("check", path, "--layer", "1", "--positions", "rope", "--causal")
    assert (done.returncode, done.stdout[:6]) == (0, b"agrees")
    assert b"input_layernorm" in done.stdout
    done = workplace.run("check", path)
    assert (done.returncode, b"layers 0 to 1; --layer N says which" in done.stderr) == (2, True)
    cell = ["attention_weights[0,1,2,1]", "--layer", "1", "--positions", "rope", "--causal"]
    assert workplace.run("explain", path, *cell).returncode == 0


def packed(arrays, order):
    """W_Q, W_K and W_V, (d_model, head·d), as one matrix (out, in)."""
    by_letter = np.stack([arrays[name].T for name in ("W_Q", "W_K", "W_V")])
    if order == "by head":
        by_letter = by_letter.reshape(3, own.SQUARE.heads, -1, by_letter.shape[-1]).swapaxes(0, 1)
    return by_letter.reshape(-1, by_letter.shape[-1])


NAMED = {
    "variables": {
        "query_states": "Q", "key_states": "K", "value_states": "V", "attn_probs": "attention_weights",
        "context_layer": "head_outputs",
    },
    "letters": {"q": "Q", "k": "K", "v": "V", "attn": "attention_weights", "z": "head_outputs"},
    "words": {"query": "Q", "key": "K", "value": "V", "attn_weights": "attention_weights"},
    "layers of BERT": {"query_layer": "Q", "key_layer": "K", "value_layer": "V", "out": "output"},
}  # fmt: skip


@pytest.mark.parametrize("names", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("mistake", [None, "no-scale"])
def test_common_variables_are_known(names, mistake):
    arrays = own.attend(own.CAUSAL, mistake)
    theirs = {name: arrays[ours] for name, ours in names.items()} | {"W_O": arrays["W_O"]}
    report = attnctl.check(theirs, heads=2, causal=True)
    assert (report.agrees, report.mistake) == (mistake is None, mistake)


MATRICES = {
    "Llama": lambda w: {f"{each.lower()}_proj.weight": w[f"W_{each}"].T for each in "QKV"},
    "T5": lambda w: {f"SelfAttention.{each.lower()}.weight": w[f"W_{each}"].T for each in "QKV"},
    "DistilBERT": lambda w: {f"{each.lower()}_lin.weight": w[f"W_{each}"].T for each in "QKV"},
    "nanoGPT": lambda w: {"h.3.attn.c_attn.weight": packed(w, "thirds")},
    "GPT-2": lambda w: {"h.3.attn.c_attn.weight": packed(w, "thirds").T},
    "ViT of timm": lambda w: {"blocks.0.attn.qkv.weight": packed(w, "thirds")},
    "BLOOM": lambda w: {"h.0.self_attention.query_key_value.weight": packed(w, "by head")},
}


@pytest.mark.parametrize("make", MATRICES.values(), ids=MATRICES)
def test_matrices_of_other_families_are_known(make):
    arrays = own.attend(own.SQUARE)
    weights = make(arrays)
    theirs = {"hidden_states": arrays["X"], "attn_weights": arrays["attention_weights"], **weights}
    report = attnctl.check(theirs, heads=own.SQUARE.heads)
    assert report.agrees, report.findings
    assert {"W_Q", "W_K", "W_V"} <= set(report.trace)


def test_what_is_not_known_keeps_its_name_and_is_said():
    arrays = {"q": np.ones((2, 3)), "rotary_emb.inv_freq": np.ones(2), "query_states": np.ones((2, 3))}
    found = read_foreign(arrays)
    assert list(found.arrays) == ["Q", "rotary_emb.inv_freq"]
    assert found.notes == ["query_states is left out: Q is there already"]
    assert read_foreign({"query_key_value": np.ones((2, 12))}).notes == [
        "query_key_value is left out: --heads N says how many heads share its 3"
    ]


def test_v_made_of_other_rows_than_k_is_not_accused():
    arrays = loaded("torch-mha")
    arrays["value"] = arrays["value"] + 1
    report = attnctl.check(arrays)
    assert not report.findings
    assert any(note.startswith("value is left out") for note in report.notes)


@pytest.mark.parametrize(("layer", "said"), [(None, "layers 0 to 1; --layer N"), (2, "layers 0 to 1")])
def test_which_layer_must_be_said(layer, said):
    with pytest.raises(AttnError, match=said):
        attnctl.check(loaded("llama"), layer=layer)


def test_how_many_heads_there_are_is_found_where_the_matrices_leave_it_open():
    arrays = loaded("llama")
    del arrays["attn_weights"]
    kept = {name: array for name, array in arrays.items() if "layernorm" not in name}
    trace = attnctl.attend(kept, layer=1, heads=4)
    report = attnctl.check({**kept, "attn_output": trace["output"]}, layer=1)
    assert (report.agrees, report.unasked) == (False, "--heads 4")


@pytest.mark.parametrize(
    ("theirs", "alone", "with_model"),
    [
        ("q_states", "Q", "Q"),
        ("Attn_Weights", "attention_weights", "attention_weights"),
        ("layers.3.self_attn.o_proj", "output", "output"),
        ("context_merged", "concat", "concat"),
        ("lse", "logsumexp", "logsumexp"),
        ("hidden_states", "X", "hidden"),
        ("input_layernorm", "input_layernorm", "X"),
        ("attention", "attention", "attention_weights"),
        ("wq", "Q", "wq"),
        ("encoder_hidden_states", "memory", "encoder_hidden_states"),
        ("grad_attn_output", "d_output", "d_output"),
    ],
)
def test_a_name_is_read_alike_alone_and_beside_a_model_but_where_the_model_says_more(
    theirs, alone, with_model
):
    assert list(read_foreign({theirs: np.zeros((3, 4))}).arrays) == [alone]
    assert beside_model([theirs], cross=False).get(theirs, theirs) == with_model


@pytest.mark.parametrize(
    ("name", "rows", "tokens", "ours"),
    [
        ("Wq", 4, 5, "W_Q"),
        ("wq", 4, 5, "W_Q"),
        ("WQ", 4, 4, "W_Q"),
        ("wq", 5, 5, "Q"),
        ("attn.wq", 4, 4, "Q"),
        ("attn.wq", 4, 5, "W_Q"),
        ("w_o", 4, 5, "W_O"),
    ],
)
def test_what_may_be_a_matrix_or_what_comes_out_is_told_by_its_shape(name, rows, tokens, ours):
    arrays = {"X": np.zeros((tokens, 4)), name: np.zeros((rows, 4))}
    assert list(read_foreign(arrays).arrays) == ["X", ours]


@pytest.mark.parametrize(
    ("name", "shape", "ours"),
    [
        ("weights", (5, 5), "attention_weights"),
        ("A", (2, 5, 5), "attention_weights"),
        ("weights", (4, 7), "weights"),
    ],
)
def test_weights_are_those_of_attention_where_they_have_its_rows(name, shape, ours):
    assert list(read_foreign({"Q": np.zeros((5, 4)), name: np.zeros(shape)}).arrays) == ["Q", ours]


CALLED = {
    "X": "x X inputs emb embeddings E tokens_emb h hidden_states",
    "W": "Wq,Wk,Wv,Wo W_q,W_k,W_v,W_o WQ,WK,WV,WO wq,wk,wv,wo w_q,w_k,w_v,w_o "
    "W_query,W_key,W_value,W_out query_weight,key_weight,value_weight,out_weight",
    "QKV": "q,k,v Q,K,V query,key,value queries,keys,values qs,ks,vs Qh,Kh,Vh",
    "S": "scores attn_scores logits energy sim dots qk s S score attention_scores raw_scores",
    "scaled": "scaled_scores scaled scores_scaled scaled_logits",
    "A": "weights attn attention probs alpha A P attn_weights a w softmax_scores",
    "Z": "z Z context ctx head_out heads_out attended",
    "Y": "out output y Y result O o",
}
"""What people call the arrays of attention in a program of a few lines."""

HABITS = st.fixed_dictionaries({kind: st.sampled_from(words.split()) for kind, words in CALLED.items()})


@given(HABITS, st.sets(st.sampled_from(["S", "scaled", "A", "Z"])), st.booleans(), st.booleans())
def test_right_numbers_agree_under_any_of_the_usual_names(called, recorded, heads, projected):
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(6, 8)), draw.normal(size=(4, 8, 8)) / 8**0.5
    q, k, v = (own.split(x @ matrix, 2, None) if heads else x @ matrix for matrix in w[:3])
    scores = q @ k.swapaxes(-1, -2)
    scaled = scores / q.shape[-1] ** 0.5
    weights = np.exp(scaled) / np.exp(scaled).sum(axis=-1, keepdims=True)
    outputs = weights @ v
    y = outputs.swapaxes(0, 1).reshape(6, 8) if heads else outputs
    steps = {"S": scores, "scaled": scaled, "A": weights, "Z": outputs}
    arrays = {called["X"]: x, **dict(zip(called["W"].split(",")[: 3 + projected], w, strict=False))}
    arrays |= dict(zip(called["QKV"].split(","), (q, k, v), strict=True))
    arrays |= {called[kind]: steps[kind] for kind in sorted(recorded)}
    report = attnctl.check({**arrays, called["Y"]: y @ w[3] if projected else y})
    assert report.agrees, report.findings
