"""What an edit does: to its step, to those below, to those above, and to the dump."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.formats import write
from attnctl.store.source import read_one

OPTIONS = {"heads": 2, "seed": 3}


def run(*edits, **options):
    return attnctl.run("I love AI", edits=edits, **{**OPTIONS, **options})


PLAIN = run()


def above(name):
    """The steps that stand above one."""
    return list(PLAIN)[: list(PLAIN).index(name)]


CHANGES = {
    "attention_weights[0,love,:]=0": ("attention_weights", (0, 1), 0.0),
    "attention_weights[1,I,AI]=0.5": ("attention_weights", (1, 0, 2), 0.5),
    "head_outputs[1]=0": ("head_outputs", (1,), 0.0),
    "head_outputs[-1]=0": ("head_outputs", (1,), 0.0),
    "scores=2": ("scores", (), 2.0),
    "scores[0,:,AI]+=1": ("scores", (0, slice(None), 2), PLAIN["scores"][0, :, 2] + 1),
    "V[1]*=-3": ("V", (1,), PLAIN["V"][1] * -3),
    "embeddings[AI]=0": ("embeddings", (2,), 0.0),
    "X[love,0]=7": ("X", (1, 0), 7.0),
    "W_Q[0,3,1]=1": ("W_Q", (0, 3, 1), 1.0),
    "W_O=0": ("W_O", (), 0.0),
    "output[I]=1": ("output", (0,), 1.0),
    "attention_weights[0,love,:]=[0, 1, 0]": ("attention_weights", (0, 1), [0, 1, 0]),
    "scores[1]=[[1,2,3],[4,5,6],[7,8,-9]]": ("scores", (1,), [[1, 2, 3], [4, 5, 6], [7, 8, -9]]),
    "X[AI]+=[1,2,3,4]": ("X", (2,), PLAIN["X"][2] + [1, 2, 3, 4]),
}


@pytest.mark.parametrize("edit", CHANGES)
def test_a_step_is_changed_where_it_says_and_nothing_above_it_is(edit):
    name, place, value = CHANGES[edit]
    trace = run(edit)
    expected = PLAIN[name].copy()
    expected[place] = value
    assert np.array_equal(trace[name], expected)
    for other in above(name):
        assert np.array_equal(trace[other], PLAIN[other])
    assert recomputed(trace, name)
    assert trace.header["edits"] == [{"step": name, "edit": edit}]
    assert trace.config["edits"] == [edit]
    assert trace.steps[name].formula.endswith(", edited")


def recomputed(trace, edited):
    """Whether every step but the edited one follows from those recorded beside it."""
    t = {name: trace[name] for name in trace}
    e = np.exp(t["scaled_scores"])
    lines = {
        "X": t["embeddings"],
        **{name: t["X"] @ t[f"W_{name}"] for name in "QKV"},
        "scores": t["Q"] @ t["K"].transpose(0, 2, 1),
        "scaled_scores": t["scores"] / 2**0.5,
        "attention_weights": e / e.sum(-1, keepdims=True),
        "head_outputs": t["attention_weights"] @ t["V"],
        "concat": np.concatenate(list(t["head_outputs"]), axis=-1),
        "output": t["concat"] @ t["W_O"],
    }
    return all(np.allclose(t[name], line, 1e-12, 1e-12) for name, line in lines.items() if name != edited)


def test_ablating_a_head_is_computing_without_it():
    trace = run("head_outputs[1]=0")
    z = PLAIN["head_outputs"]
    assert np.allclose(trace["output"], z[0] @ PLAIN["W_O"][:2], 1e-12, 1e-12)


def test_edits_come_one_after_the_other():
    trace = run("scores[0]=1", "scores[0,I]*=4", "scores[0,I,I]+=1", "head_outputs=1", "V[0]=2")
    assert trace["scores"][0].tolist() == [[5, 4, 4], [1, 1, 1], [1, 1, 1]]
    assert trace["head_outputs"].tolist() == [[[1, 1]] * 3] * 2
    assert trace["V"][0].tolist() == [[2, 2]] * 3
    assert [each["step"] for each in trace.header["edits"]] == ["scores"] * 3 + ["head_outputs", "V"]


def test_a_hidden_score_is_a_key_that_is_not_seen():
    trace = run("scaled_scores[:,:,AI]=-inf")
    without = run("masked_scores[:,:,AI]=-inf", mask=[[1, 1, 1]])
    assert trace["attention_weights"][..., 2].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert np.allclose(trace["attention_weights"].sum(-1), 1)
    assert np.array_equal(trace["output"], without["output"])
    assert "empty_rows" not in trace.header


def test_only_a_row_that_may_see_nothing_is_said_to():
    assert "empty_rows" not in run("attention_weights[0,love]=0").header
    assert run("scaled_scores[0,love]=-inf").header["empty_rows"] == [[0, 1]]


def test_only_what_grew_too_large_is_said_to():
    assert "overflow" not in run("scaled_scores[0,love]=-inf", dtype="float32").header
    header = run("Q=300", "K=300", "scores[0,I,I]=-inf", dtype="float16").header
    assert header["overflow"] == {"step": "scores", "at": [0, 0, 1]}


def test_a_mask_is_edited_as_true_and_false():
    trace = run("mask[0,1]=0", mask=[[1, 1, 1], [1, 1, 1], [1, 1, 1]])
    assert trace["mask"].tolist()[0] == [True, False, True]
    assert trace["attention_weights"][:, 0, 1].tolist() == [0, 0]
    for edit in ("mask[0,1]=2", "mask[0,1]+=1"):
        with pytest.raises(attnctl.AttnError, match="mask is true or false"):
            run(edit, mask=[[1, 1, 1]])


@pytest.fixture
def other(tmp_path):
    trace = attnctl.run("I love AI", heads=2, seed=8)
    for suffix in ("json", "npz", "safetensors"):
        write([trace], tmp_path / f"other.{suffix}")
    return trace, tmp_path / "other"


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors"])
def test_patching_the_weights_of_another_dump(other, suffix):
    theirs, path = other
    trace = run(f"attention_weights=@{path}.{suffix}")
    assert np.array_equal(trace["attention_weights"], theirs["attention_weights"])
    assert np.array_equal(trace["head_outputs"], theirs["attention_weights"] @ PLAIN["V"])


def test_patching_a_part(other):
    theirs, path = other
    trace = run(f"attention_weights[0,love]=@{path}.npz", f"V[1]+=@{path}.json")
    expected = PLAIN["attention_weights"].copy()
    expected[0, 1] = theirs["attention_weights"][0, 1]
    assert np.array_equal(trace["attention_weights"], expected)
    assert np.array_equal(trace["V"][1], PLAIN["V"][1] + theirs["V"][1])


def test_a_patch_is_found_by_the_tokens_of_the_other(tmp_path):
    write([attnctl.run("AI is love", heads=2)], tmp_path / "other.json")
    trace = run(f"embeddings[AI]=@{tmp_path}/other.json")
    assert np.array_equal(trace["embeddings"][2], read_one(tmp_path / "other.json")["embeddings"][0])


REFUSED = {
    "masked_scores=0": "no step 'masked_scores' in this run; it has embeddings, X, W_Q",
    "attention_weights[2]=0": "no head 2; there are 2: use 0 to 1",
    "attention_weights[0,lov]=0": "no token 'lov'; did you mean love",
    "attention_weights[0,0,0,0]=0": "4 places named, but it has the axes",
    "attention_weights[0,0,0]=-inf": "would be -inf as float64, expected a finite number; only scores",
    "scores[0,0,0]=1e400": "would be inf as float64, expected a finite number or -inf",
    "output[I,0]*=1e308": None,
    "attention_weights=@{}.json:x": "cannot be read",
    "masked=@{}-wide.json": "no step 'masked' in this run",
    "X=@{}-wide.json": "3 × 4 here, but 3 × 8 in the other dump",
    "head_outputs[0]=@{}-wide.json": "3 × 2 here, but 3 × 4 in the other dump",
    "W_O=@{}-brief.json": "the other one: no step 'W_O' in this dump",
}


@pytest.mark.parametrize("edit", REFUSED)
def test_what_cannot_be_done_is_refused(edit, tmp_path):
    path = tmp_path / "other"
    write([attnctl.run("I love AI", heads=2, d_model=8)], f"{path}-wide.json")
    write([attnctl.run("I love AI", heads=2, keep=["X", "output"])], f"{path}-brief.json")
    message = REFUSED[edit]
    edit = edit.format(path)
    if message is None:
        assert np.isfinite(run(edit)["output"]).all()
        return
    with pytest.raises(attnctl.AttnError, match=message) as caught:
        run(edit)
    assert str(caught.value).startswith("edit ")


def test_too_large_for_float16_is_refused():
    with pytest.raises(attnctl.AttnError, match="would be inf as float16"):
        run("X[0,0]=70000", dtype="float16")


# --- renormalize ---


def test_edited_rows_sum_to_one_again_and_others_keep_their_bits():
    trace = run("attention_weights[0,love,I]=0", renormalize=True)
    before, after = PLAIN["attention_weights"], trace["attention_weights"]
    kept = before[0, 1, 1:]
    assert np.allclose(after[0, 1], [0, *(kept / kept.sum())], 1e-15)
    assert np.array_equal(after[0, [0, 2]], before[0, [0, 2]])
    assert np.array_equal(after[1], before[1])
    assert trace.config["renormalize"] is True
    assert np.array_equal(trace["head_outputs"], after @ PLAIN["V"])


def test_a_row_that_rounding_leaves_beside_one_keeps_its_bits_too():
    words = "the quick brown fox jumps over a lazy dog today"
    before = attnctl.run(words, **OPTIONS)["attention_weights"]
    edit = "attention_weights[1,today,today]=0"
    after = attnctl.run(words, edits=(edit,), renormalize=True, **OPTIONS)["attention_weights"]
    assert (before[:, :-1].sum(axis=-1) != 1).any()
    assert np.array_equal(after[:, :-1], before[:, :-1])


def test_rows_of_zeros_stay():
    assert not run("attention_weights[0]=0", renormalize=True)["attention_weights"][0].any()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(*(st.integers(0, n - 1) for n in (2, 3, 3)), st.floats(0, 1e6)), min_size=1, max_size=4
    )
)
def test_renormalized_rows_sum_to_one_or_are_zero(cells):
    edits = [f"attention_weights[{h},{q},{k}]={value!r}" for h, q, k, value in cells]
    for row in run(*edits, renormalize=True)["attention_weights"].reshape(-1, 3):
        assert not row.any() or row.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (["attention_weights[0,love]=-1"], r"attention_weights\[0, 1\] sums to -3; only a sum above 0"),
        (["attention_weights[1,AI]=1e308"], r"attention_weights\[1, 2\] sums to inf"),
        (["scores=0"], "no edit of attention_weights"),
        ([], "no edit of attention_weights"),
    ],
)
def test_what_cannot_be_renormalized(edits, message):
    with pytest.raises(attnctl.AttnError, match=f"renormalize: .*{message}"):
        run(*edits, renormalize=True)


# --- elsewhere ---


def test_arrays_can_be_edited_too():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 3, 4, 5)) for name in "QKV"}
    trace = attnctl.attend(arrays, edits=("attention_weights[1,2]=0", "V[0,0,0,0]=9"))
    assert not trace["attention_weights"][1, 2].any()
    assert trace["V"][0, 0, 0, 0] == 9
    assert arrays["V"][0, 0, 0, 0] != 9


def test_several_sentences_are_each_edited():
    traces = attnctl.api.run_many(["I love AI", "AI"], edits=("X[AI]=1",), **OPTIONS)
    assert [trace["X"][-1].tolist() for trace in traces] == [[1] * 4] * 2
    assert traces[1]["attention_weights"].shape == (2, 1, 1)


def test_only_some_steps_kept():
    trace = run("head_outputs[0]=0", keep=["output"])
    assert np.array_equal(trace["output"], run("head_outputs[0]=0")["output"])
    assert list(trace) == ["output"]


def test_a_large_run_that_keeps_little_is_edited_all_the_same():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((1, 1100, 2)) for name in "QKV"}
    trace = attnctl.attend(arrays, keep=["head_outputs"], edits=("attention_weights[0,5]=0",))
    assert not trace["head_outputs"][0, 5].any()
    plain = attnctl.attend(arrays, keep=["head_outputs"])
    assert np.allclose(trace["head_outputs"][0, 6:], plain["head_outputs"][0, 6:], 1e-12)


@pytest.mark.parametrize("edit", ["attention_weights[0,love,:]=0", "attention_weights[1]*=0.5"])
def test_the_difference_shows_that_only_attention_went_elsewhere(edit):
    found = attnctl.diff(PLAIN, run(edit))
    assert found.first == "attention_weights"
    for change in found.split:
        if change.norm:
            assert change.parts["attended_elsewhere"].share == pytest.approx(1, abs=1e-12)
            assert (
                max(part.norm for name, part in change.parts.items() if name != "attended_elsewhere")
                < 1e-12
            )


def test_the_difference_shows_an_ablated_head_as_none_of_its_parts():
    found = attnctl.diff(PLAIN, run("head_outputs[1]=0"))
    assert found.first == "head_outputs"
    shares = [change.parts["rest"].share for change in found.split]
    assert shares == pytest.approx([0, 1, 1], abs=1e-12)
    assert [change.of_output for change in found.split] == [0, pytest.approx(1, abs=1e-12), None]
