"""Explanations: the arithmetic evaluates to the cell, for every cell of every step of every variant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from explained import check_cells, close, evaluated

import attnctl
from attnctl.base.errors import AttnError
from attnctl.inputs.config.load import load
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Causal
from attnctl.store.source import read_one
from attnctl.verbs.explain import Explainer, explain

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))

VARIANTS = {
    "plain": {},
    "heads": {"heads": 2},
    "one kv head": {"heads": 4, "kv_heads": 1, "d_model": 8},
    "sinusoidal and causal": {"positions": "sinusoidal", "causal": True},
    "rotary": {"positions": "rope", "heads": 2, "d_model": 8},
    "part of it rotary, interleaved": {"positions": Rotary(30.0, 2, interleaved=True)},
    "alibi and window": {"positions": "alibi", "window": (1, 0), "heads": 2},
    "softcap and scale": {"softcap": 2.0, "scale": 0.3},
    "cross": {"context": "you love cats", "positions": "sinusoidal", "heads": 2},
    "mask": {"mask": [[0, 0, 0], [1, 0, 1], [1, 1, 1]]},
    "bias": {"bias": [[0, -1, 1], [0.5, 2, float("-inf")], [1, 0, 0]]},
}


@pytest.mark.sample(16)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_every_cell_evaluates_to_itself(options, dtype):
    assert check_cells(attnctl.run("I love AI", dtype=dtype, **options)) > 50


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_every_cell_of_a_gradient_evaluates_to_itself(options, dtype):
    assert check_cells(attnctl.run("I love AI", dtype=dtype, backward=True, **options), most=12) > 300


def test_a_gradient_says_what_it_needs_of_the_forward_pass():
    explainer = Explainer(attnctl.run("I love AI", heads=2, kv_heads=1, softcap=3.0, backward=True))
    behind_scores = ["W_O", "V_shared", "head_outputs", "attention_weights", "softcapped_scores"]
    for name, reads, behind in [
        ("scores", [], []),
        ("d_output", [], []),
        ("d_concat", ["W_O"], []),
        ("d_V", [], ["W_O", "attention_weights"]),
        ("delta", ["head_outputs"], ["W_O"]),
        ("d_Q", ["K_shared"], behind_scores),
        ("d_W_K", ["X"], ["Q", *behind_scores]),
    ]:
        found = explainer.forward_of(name)
        assert (found["reads"], set(found["behind"])) == (reads, set(behind)), name
        assert found["behind"] == [each for each in explainer.trace if each in behind]


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_cell_of_every_shipped_config(path):
    """Up to 15 cells of a step here, and 600 with `slow`."""
    assert check_cells(attnctl.run(settings=load(str(path))), most=15)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_more_cells_of_every_shipped_config(path):
    assert check_cells(attnctl.run(settings=load(str(path))), most=600)


def test_a_batch_a_cache_and_lengths():
    rng = np.random.RandomState(3)
    arrays = {name: rng.uniform(-1, 1, (2, 2, 3, 4)) for name in ("Q", "K", "V")}
    arrays |= {name: rng.uniform(-1, 1, (2, 2, 2, 4)) for name in ("past_key", "past_value")}
    trace = attnctl.attend({**arrays, "key_lengths": np.array([5, 3])}, positions="rope", causal=True)
    assert check_cells(trace)


def test_sums_longer_than_a_parser_can_nest():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 3500)) for name in ("Q", "K", "V")}
    found = explain(attnctl.attend(arrays), "scores[0,1,0]")
    assert len(found.inputs) == 7000
    assert close(evaluated(found.expression), found.value)


def test_terms_that_cancel_are_made_up_for():
    """Summed in another order the same terms give another last digit: all there is, when they cancel."""
    q = np.array([[1e16, 1.0, -1e16, 1e-3]])
    trace = attnctl.attend({"Q": q, "K": np.ones((1, 4)), "V": np.ones((1, 1))})
    found = explain(trace, "scores[0,0,0]")
    assert evaluated(found.expression) == found.value


def typed_in():
    q, k = np.array([[0.41, -0.93]]), np.array([[1.2, 0.07], [0.0, -1.0]])
    return attnctl.attend({"Q": q, "K": k, "V": np.array([[3.0], [7.0]])}, mask=[[1, 0]])


@pytest.mark.parametrize(
    ("cell", "value", "formula", "expression", "inputs"),
    [
        (
            "scores[0,0]",
            0.4269,
            "Q Kᵀ",
            "(0.41 * 1.2 + (-0.93) * 0.07)",
            [("Q", (0, 0, 0)), ("K", (0, 0, 0)), ("Q", (0, 0, 1)), ("K", (0, 0, 1))],
        ),
        ("scaled_scores[0,1]", 0.657609, "scores / √d_k", None, [("scores", (0, 0, 1))]),
        (
            "masked_scores[0,1]",
            -np.inf,
            "S where allowed, else −∞",
            "-Infinity",
            [],
        ),
        ("attention_weights[0,1]", 0.0, "softmax over keys", "0", []),
        ("attention_weights[0,0]", 1.0, "softmax over keys", None, [("masked_scores", (0, 0, 0))]),
        ("K[1,1]", -1.0, "given", "(-1.0)", []),
    ],
)
def test_one_cell(cell, value, formula, expression, inputs):
    found = explain(typed_in(), cell)
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.step.formula == formula
    assert list(found.inputs) == inputs
    assert expression in {None, found.expression}
    assert found.notes == (("hidden by the given mask",) if value in {0, -np.inf} else ())


def test_what_hides_a_score_is_named():
    trace = attnctl.run("a b c d", causal=True, window=(1, 1))
    assert explain(trace, "masked_scores[a,b]").notes == ("hidden by causal",)
    assert explain(trace, "masked_scores[d,a]").notes == ("hidden by window",)
    assert explain(trace, "attention_weights[d,a]").notes == ("hidden by window",)
    assert explain(trace, "attention_weights[d,d]").notes == ()


def test_a_row_that_sees_nothing_is_zero():
    trace = attnctl.run("I love AI", mask=[[0, 0, 0], [1, 1, 1], [1, 1, 1]])
    assert explain(trace, "attention_weights[I,I]").expression == "0"
    assert explain(trace, "head_outputs[I,0]").value == 0


# --- the tree ---


def walk(node):
    yield node
    for child in node.children:
        yield from walk(child)


def root(trace, cell, depth):
    from attnctl.record.cells import parse_address

    return Explainer(trace).root(parse_address(cell), depth)


def test_the_tree_goes_back_to_embeddings_and_weights():
    trace = attnctl.run("I love AI", positions="sinusoidal", causal=True)
    nodes = list(walk(root(trace, "output[love,2]", 99)))
    leaves = {
        node.step
        for node in nodes
        if not node.repeated and node.explanation and not node.explanation.inputs
    }
    assert leaves == {
        "embeddings",
        "positions",
        "W_Q",
        "W_K",
        "W_V",
        "W_O",
        "attention_weights",
    }
    explained = [(node.step, node.cell) for node in nodes if node.explanation and node.explanation.inputs]
    assert len(explained) == len(set(explained)), "a cell is explained once"
    assert all(node.value == trace[node.step][node.cell] for node in nodes)


@pytest.mark.parametrize(
    ("depth", "steps"),
    [(1, {"scores"}), (2, {"scores", "Q", "K"}), (3, {"scores", "Q", "K", "X", "W_Q", "W_K"})],
)
def test_depth_is_the_number_of_lines(depth, steps):
    nodes = list(walk(root(attnctl.run("I love AI"), "scores[I,AI]", depth)))
    assert {node.step for node in nodes if node.explanation} == steps


def test_a_cell_first_met_far_down_is_followed_further_where_it_comes_up_again():
    trace = attnctl.run("I love AI", causal=True)
    nodes = list(walk(root(trace, "head_outputs[AI,0]", 4)))
    scaled = [node for node in nodes if node.step == "scaled_scores" and node.explanation]
    assert len(scaled) == 3


# --- dumps of others ---


def saved(path, **arrays):
    np.savez(path / "theirs.npz", **arrays)
    return read_one(path / "theirs.npz")


@pytest.fixture
def theirs():
    rng = np.random.RandomState(5)
    q, k, v = (rng.standard_normal((3, 2)) for _ in range(3))
    grown = np.exp(q @ k.T / np.sqrt(2))
    return {"Q": q, "K": k, "V": v, "attention_weights": grown / grown.sum(1, keepdims=True)}


def test_a_foreign_dump_is_explained_by_the_standard_derivation(tmp_path, theirs):
    trace = saved(tmp_path, **theirs)
    found = explain(trace, "attention_weights[1,2]")
    assert close(evaluated(found.expression), theirs["attention_weights"][1, 2])
    assert found.inputs[0] == ("scaled_scores", (0, 1, 2))
    between = explain(trace, "scaled_scores[0,1,2]")
    assert between.value == pytest.approx(theirs["Q"][1] @ theirs["K"][2] / np.sqrt(2))
    assert between.notes == ("not in this dump: computed from what is",)


def test_the_tree_of_a_foreign_dump_goes_through_steps_that_it_leaves_out(tmp_path, theirs):
    names = {node.step for node in walk(root(saved(tmp_path, **theirs), "attention_weights[1,2]", 9))}
    assert names == {"attention_weights", "scaled_scores", "scores", "Q", "K"}


def test_what_was_meant_comes_from_options_and_what_differs_is_said(tmp_path, theirs):
    trace = saved(tmp_path, **theirs)
    found = explain(trace, "attention_weights[0,0]", Settings(rules=(Causal(),)))
    assert (found.value, found.gives) == (theirs["attention_weights"][0, 0], 1.0)
    assert found.notes == ()
    assert evaluated(found.expression) == 1.0


def test_rounding_is_not_a_difference(tmp_path, theirs):
    single = {name: array.astype(np.float32) for name, array in theirs.items()}
    found = explain(saved(tmp_path, **single), "attention_weights[2,1]")
    assert found.gives is None
    assert close(evaluated(found.expression), float(single["attention_weights"][2, 1]))


def test_numbers_worked_out_in_another_type_than_they_are_kept_in(tmp_path, theirs):
    theirs["scores"] = (theirs["Q"].astype(np.float16) @ theirs["K"].astype(np.float16).T).astype(
        np.float64
    )
    trace = saved(tmp_path, **theirs)
    assert explain(trace, "scores[0,1]").gives is not None
    assert explain(trace, "scores[0,1]", Settings(dtype="float16")).gives is None


@pytest.mark.parametrize(
    ("names", "cell", "said"),
    [
        (
            ["attention_weights"],
            "attention_weights[0,0]",
            "it comes from scaled_scores, but scaled_scores is not",
        ),
        (
            ["Q", "attention_weights"],
            "attention_weights[0,0]",
            "scaled_scores is not in this dump; keep it too",
        ),
        (["theirs"], "theirs[0,0]", "this dump does not say how it came about"),
    ],
)
def test_what_is_missing_is_named(tmp_path, theirs, names, cell, said):
    theirs["theirs"] = theirs["Q"]
    with pytest.raises(AttnError, match=said):
        explain(saved(tmp_path, **{name: theirs[name] for name in names}), cell)


def test_steps_that_were_not_kept_are_named():
    trace = attnctl.run("I love AI", causal=True).select(["attention_weights", "head_outputs"])
    with pytest.raises(AttnError) as error:
        explain(trace, "attention_weights[0,0,0]")
    assert str(error.value) == (
        "attention_weights: it comes from masked_scores, but masked_scores is not in this dump; "
        "keep it too (--step masked_scores,attention_weights)"
    )
    nodes = list(
        walk(Explainer(trace.select(["attention_weights"])).tree("attention_weights", (0, 0, 0), 3))
    )
    assert nodes[0].why_not == str(error.value)


def test_steps_that_were_not_kept_are_computed_where_the_rest_tells_them():
    trace = attnctl.run("I love AI", heads=2, causal=True, softcap=3.0)
    kept = trace.select(["Q", "K", "attention_weights"])
    for cell in np.ndindex(2, 3, 3):
        assert explain(kept, spell("attention_weights", cell)).gives is None
    found = explain(kept, "masked_scores[1,2,0]")
    assert found.value == trace["masked_scores"][1, 2, 0]
    assert found.notes == ("not in this dump: computed from what is",)


def test_steps_that_were_edited_are_not_computed():
    """The edit of a step that was left out is not in what its config says."""
    kept = attnctl.run("I love AI", edits=["scores[0,love,AI]=9"]).select(["Q", "K", "attention_weights"])
    with pytest.raises(AttnError, match="scaled_scores is not in this dump"):
        explain(kept, "attention_weights[0,1,2]")


def spell(step, cell):
    return f"{step}[{','.join(map(str, cell))}]"


def test_options_for_a_dump_that_needs_none_are_refused():
    with pytest.raises(AttnError, match="this dump says itself"):
        explain(attnctl.run("I love AI"), "X[I,0]", Settings())


def test_a_line_that_does_not_fit_its_numbers_is_an_error_and_no_crash():
    trace = attnctl.run("I love AI")
    broken = {**trace, "K": trace["K"][:, :2]}
    with pytest.raises(AttnError, match="does not fit its numbers"):
        explain(attnctl.Trace(trace.steps, broken, trace.header), "scores[0,0,2]")


# --- edits ---


@pytest.mark.parametrize(
    ("cell", "formula", "note"),
    [
        ("attention_weights[0,love,I]", "edited", "edited: attention_weights[0,love,I]=0.9"),
        (
            "attention_weights[0,love,AI]",
            "edited",
            "changed by an edit of this step: its row was made to sum to 1 again",
        ),
        ("attention_weights[0,I,AI]", "softmax over keys", None),
    ],
)
def test_an_edited_cell_is_explained_as_edited(cell, formula, note):
    trace = attnctl.run("I love AI")
    weights = trace["attention_weights"].copy()
    weights[0, 1] = 0.9, 0.06, 0.04
    header = {
        **trace.header,
        "edits": [{"step": "attention_weights", "edit": "attention_weights[0,love,I]=0.9"}],
    }
    found = explain(attnctl.Trace(trace.steps, {**trace, "attention_weights": weights}, header), cell)
    assert found.step.formula == formula
    assert found.notes == (() if note is None else (note,))
    assert close(evaluated(found.expression), found.value)


@pytest.mark.parametrize("edits", ["x", [1], [{"edit": 3}], {"edit": "scores=1"}, [{}], None])
def test_edits_that_make_no_sense_are_refused(edits):
    trace = attnctl.run("I love AI")
    with pytest.raises(AttnError, match="edits"):
        explain(attnctl.Trace(trace.steps, trace, {**trace.header, "edits": edits}), "scores[0,0]")


@pytest.mark.parametrize("cap", [0.1, 30.0, 50.0, 60000.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0])
def test_rounding_and_underflow_of_a_float16_soft_cap_are_no_other_number(cap, size):
    random = np.random.RandomState(0)
    arrays = {name: size * random.standard_normal((6, 8)) for name in "QKV"}
    explainer = Explainer(attnctl.attend(arrays, softcap=cap, dtype="float16"))
    cells = [(0, query, key) for query in range(6) for key in range(6)]
    assert [explainer.explain("softcapped_scores", cell).gives for cell in cells] == [None] * 36


def test_a_soft_cap_that_was_left_out_is_another_number():
    trace = attnctl.attend({name: np.full((1, 1), 2.0) for name in "QKV"}, softcap=2.0, dtype="float16")
    wrong = {**trace, "softcapped_scores": trace["scaled_scores"]}
    found = explain(attnctl.Trace(trace.steps, wrong, trace.header), "softcapped_scores[0,0,0]")
    assert (found.value, found.gives) == (4.0, pytest.approx(2 * np.tanh(2)))
