"""Arrays in anyone's layout, whole or in part, are read as what they are."""

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl
from attnctl import AttnError
from attnctl.inputs.config.settings import Settings

GROUPED = own.GROUPED.but(dtype=own.F64)  # W_K is square, W_Q is not


def side_by_side(x):
    """(…, h, n, d) -> (…, n, h·d)."""
    *batch, heads, n, d = x.shape
    return np.swapaxes(x, -2, -3).reshape(*batch, n, heads * d)


def rows_first(x):
    """(…, h, n, d) -> (…, n, h, d)."""
    return np.swapaxes(x, -2, -3)


LAYOUTS = {
    "fused": (("Q", "K", "V", "K_shared", "V_shared", "head_outputs"), side_by_side),
    "rows first": (("Q", "K", "V", "K_shared", "V_shared", "head_outputs"), rows_first),
    "a leading 1": (("Q", "K", "V", "scores", "attention_weights", "concat", "output"), lambda x: x[None]),
    "nn.Linear": (("W_Q", "W_K", "W_V", "W_O"), lambda w: w.T),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("mistake", [None, "no-scale", "kv-heads-tiled"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_layouts_say_the_same(layout, mistake):
    names, move = LAYOUTS[layout]
    arrays = own.attend(GROUPED.but(bias=True), mistake)
    for name in names:
        arrays[name] = move(arrays[name])
    report = attnctl.check(foreign(arrays), meant(GROUPED))
    assert report.mistake == mistake
    assert report.agrees == (mistake is None)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mistake", [None, "softmax-over-queries", "padding-ignored"])
@pytest.mark.parametrize("layout", ["as it is", "fused", "rows first"])
def test_a_batch_is_read_in_any_layout(layout, mistake):
    names, move = LAYOUTS.get(layout, ((), None))
    arrays = own.attend(own.PADDED.but(bias=True), mistake)
    for name in set(names) & set(arrays):
        arrays[name] = move(arrays[name])
    report = attnctl.check(foreign(arrays), meant(own.PADDED))
    assert report.mistake == mistake
    assert report.agrees == (mistake is None)


@pytest.mark.parametrize("dtype", [own.F64, "bfloat16"])
@pytest.mark.parametrize("what", ["everything", "weights and outputs"])
@pytest.mark.parametrize(("kv_heads", "n"), [(1, 4), (2, 4), (2, 2), (4, 4)])
def test_rows_come_first_where_sizes_tell_it_of_some_arrays_only(kv_heads, n, what, dtype):
    """Four heads of four tokens are Q either way; K of fewer heads is not."""
    near = own.bfloat16 if dtype == "bfloat16" else None
    kind = own.Kind(heads=4, kv_heads=kv_heads, n=n, d_model=6, d=2, dtype=own.F32 if near else dtype)
    arrays = own.recorded(own.attend(kind, near=near), what)
    names = LAYOUTS["rows first"][0]
    moved = {name: rows_first(x) if name in names else x for name, x in arrays.items()}
    report = attnctl.check(foreign(moved), meant(kind))
    assert report.findings == (), str(report)
    assert report.agrees is not False


def test_weights_without_a_head_axis_are_of_one_head():
    arrays = own.attend(own.PLAIN)
    bare = {name: arrays[name][0] for name in ("Q", "K", "V", "attention_weights", "head_outputs")}
    report = attnctl.check(foreign(bare))
    assert report.agrees
    assert report.trace["attention_weights"].shape == (1, 5, 5)
    bare["attention_weights"] = own.softmax(bare["Q"] @ bare["K"].T)
    assert attnctl.check(foreign(bare)).mistake == "no-scale"


def test_heads_split_wrong_after_they_were_written_down():
    """Q, K and V are recorded fused; the program split them by reshape alone."""
    arrays = own.attend(own.CAUSAL)
    fused = {name: side_by_side(arrays[name]) for name in ("Q", "K", "V")}
    q, k, v = (own.split(x, 2, "heads-split-wrong") for x in fused.values())
    s = np.where(np.tril(np.ones((6, 6), bool)), q @ k.swapaxes(-1, -2) / np.sqrt(5), -np.inf)
    report = attnctl.check(foreign({**fused, "head_outputs": own.softmax(s) @ v}), meant(own.CAUSAL))
    assert report.mistake == "heads-split-wrong"
    assert report.agrees is False


PARTS = {
    "Q K V and the weights": ("Q", "K", "V", "attention_weights"),
    "Q K V and the outputs of heads": ("Q", "K", "V", "head_outputs"),
    "Q K V and concat": ("Q", "K", "V", "concat"),
    "scores and weights": ("scaled_scores", "attention_weights"),
    "weights, V and outputs": ("attention_weights", "V", "head_outputs"),
    "concat, W_O and output": ("concat", "W_O", "output"),
    "X, matrices and V": ("X", "W_Q", "W_K", "W_V", "V"),
    "masked scores that nothing explains": ("masked_scores", "attention_weights"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("names", PARTS.values(), ids=PARTS)
def test_some_steps_are_enough(names):
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in names}
    settings = meant(own.CAUSAL)
    right, last = attnctl.check(foreign(kept), settings), names[-1]
    assert (right.findings, right.steps[last].verdict.value) == ((), "agrees")
    assert [each.step for each in right.cannot_tell] == [names[0]] * (
        names[0] not in {"Q", "X"}
    )  # made of nothing here
    assert right.agrees is (None if right.cannot_tell else True)
    kept[last] = kept[last] + 0.01 * (np.arange(kept[last].size) == 3).reshape(kept[last].shape)
    report = attnctl.check(foreign(kept), settings)
    assert (report.first, report.gap.differing) == (last, 1)


def test_an_output_without_a_matrix_is_the_heads_side_by_side():
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in ("Q", "K", "V")}
    assert attnctl.check(foreign({**kept, "output": arrays["concat"]}), meant(own.CAUSAL)).agrees
    wrong = own.merge(arrays["head_outputs"], "heads-merged-wrong")
    report = attnctl.check(foreign({**kept, "output": wrong}), meant(own.CAUSAL))
    assert (report.first, report.mistake) == ("output", "heads-merged-wrong")


def test_large_negative_numbers_for_minus_infinity_are_fine_where_softmax_makes_nothing_of_them():
    arrays = own.attend(own.CAUSAL)
    for fill in (-1e9, float(np.finfo(np.float32).min)):
        hidden = np.where(np.isinf(arrays["masked_scores"]), fill, arrays["masked_scores"])
        assert attnctl.check(foreign({**arrays, "masked_scores": hidden}), meant(own.CAUSAL)).agrees
    seen = np.where(np.isinf(arrays["masked_scores"]), -20.0, arrays["masked_scores"])
    report = attnctl.check(foreign({**arrays, "masked_scores": seen}), meant(own.CAUSAL))
    assert report.first == "masked_scores"


def test_scores_that_are_scaled_already_are_told_from_scores_scaled_twice():
    arrays = own.attend(own.PLAIN)
    kept = {name: arrays[name] for name in ("Q", "K", "attention_weights")}
    kept["scores"] = arrays["scaled_scores"]
    report = attnctl.check(foreign(kept))
    assert (report.agrees, report.reading) == (True, "scores as scaled_scores")
    kept["attention_weights"] = own.softmax(arrays["scaled_scores"] / np.sqrt(6))
    assert attnctl.check(foreign(kept)).mistake == "scaled-twice"


def test_a_causal_mask_that_nobody_asked_for_is_named():
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "attention_weights")}
    report = attnctl.check(foreign(kept), Settings(heads=2))
    assert report.mistake == "mask-unasked"
    assert "--causal" in report.findings[0].fix


def test_a_float_mask_is_added_and_a_short_one_hides_the_rest():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 4)) for n in (3, 5, 5))
    added = rng.standard_normal((3, 5))
    added[0, 1] = -np.inf
    s = q @ k.swapaxes(-1, -2) / 2
    arrays = {"Q": q, "K": k, "V": v, "mask": added, "attention_weights": own.softmax(s + added)}
    assert attnctl.check(foreign(arrays)).agrees
    short = np.array([[True, False, True]] * 3)
    hidden = np.where(np.pad(short, ((0, 0), (0, 2))), s, -np.inf)
    arrays |= {"mask": short, "attention_weights": own.softmax(hidden)}
    assert attnctl.check(foreign(arrays)).agrees
    arrays["attention_weights"] = own.softmax(s)
    assert attnctl.check(foreign(arrays)).mistake == "mask-ignored"


def test_a_cache_comes_before_the_new_keys():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, 4)) for _ in range(3))
    past_k, past_v = (rng.standard_normal((2, 3, 4)) for _ in range(2))
    s = q @ np.concatenate([past_k, k], axis=1).swapaxes(-1, -2) / 2
    seen = np.tril(np.ones((2, 5), bool), k=3)
    z = own.softmax(np.where(seen, s, -np.inf)) @ np.concatenate([past_v, v], axis=1)
    arrays = {"Q": q, "K": k, "V": v, "past_key": past_k, "past_value": past_v, "head_outputs": z}
    settings = meant(own.CAUSAL).with_(causal_offset=None)
    assert attnctl.check(foreign(arrays), settings).agrees
    top_left = own.softmax(np.where(np.tril(np.ones((2, 5), bool)), s, -np.inf))
    arrays["head_outputs"] = top_left @ np.concatenate([past_v, v], axis=1)
    report = attnctl.check(foreign(arrays), settings)
    assert report.mistake == "causal-aligned-wrong"
    assert "top left" in report.findings[0].words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"K": np.zeros((2, 6, 4))}, "K: 2 × 6 × 4 does not go with the other arrays"),
        ({"attention_weights": np.zeros((5, 6))}, "average_attn_weights=False"),
        ({"mask": np.ones((4, 6), bool)}, "mask: 4 × 6 does not fit scores of 2 × 6 × 6"),
        ({"output": np.zeros((2, 6, 5))}, "call it head_outputs"),
    ],
)
def test_what_does_not_go_together_is_said(change, said):
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "attention_weights", "head_outputs")} | change
    with pytest.raises(AttnError, match=r"go with|fit") as error:
        attnctl.check(foreign(kept), meant(own.CAUSAL))
    assert said in str(error.value)


def test_weights_averaged_over_heads_are_left_out_and_the_rest_is_checked():
    arrays = own.attend(own.CAUSAL)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "head_outputs")}
    kept["attention_weights"] = arrays["attention_weights"].mean(axis=0)
    report = attnctl.check(foreign(kept), meant(own.CAUSAL))
    assert report.agrees
    assert "attention_weights" not in report.trace
    assert any("averaged over heads" in note for note in report.notes)


def test_nothing_to_compare_is_said():
    arrays = own.attend(own.CAUSAL)
    with pytest.raises(AttnError, match="nothing to compare: it has Q, V"):
        attnctl.check(foreign({name: arrays[name] for name in ("Q", "V")}))
    with pytest.raises(AttnError, match="no step is called junk"):
        attnctl.check(foreign({"junk": arrays["scores"], "Q": arrays["Q"]}))


def test_a_dict_of_arrays_will_do():
    arrays = own.attend(own.CAUSAL, "no-scale")
    report = attnctl.check(arrays, heads=2, causal=True)
    assert (report.first, report.mistake, report.agrees) == ("scaled_scores", "no-scale", False)
    lists = {name: arrays[name].tolist() for name in ("Q", "K", "scores")}
    assert attnctl.check(lists).agrees


# --- as many heads as tokens ---

AXES = {"bhnd": "bhnd,bhmd->bhnm", "bnhd": "bnhd,bmhd->bhnm", "hnd": "hnd,hmd->hnm"}
BACK = {"bhnd": "bhnm,bhmd->bhnd", "bnhd": "bhnm,bmhd->bnhd", "hnd": "hnm,hmd->hnd"}


def as_many_heads_as_tokens(layout, what="output"):
    """A right run in one layout, which is attention across heads in the other."""
    q, k, v = np.random.default_rng(0).standard_normal((3, *(1,) * (len(layout) - 3), 8, 8, 16))
    weights = own.softmax(np.einsum(AXES[layout], q, k) / 4)
    return {"Q": q, "K": k, "V": v, what: np.einsum(BACK[layout], weights, v)}


@pytest.mark.parametrize("what", ["output", "head_outputs"])
@pytest.mark.parametrize("said", ["bhnd", "bnhd"])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_a_layout_that_is_said_is_not_tried_again_as_a_guess(layout, said, what):
    report = attnctl.check(as_many_heads_as_tokens(layout, what), layout=said, heads=8)
    assert report.agrees is (layout == said)
    assert not report.reading
    if layout != said:
        assert report.mistake == "attention-over-heads"


def test_a_layout_without_a_batch_has_none():
    assert attnctl.check(as_many_heads_as_tokens("hnd"), layout="hnd", heads=8).agrees


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("layout", "reading"), [("bhnd", ""), ("bnhd", "Q K V output as (token, head, d_k)")]
)
def test_sizes_that_tell_no_layout_are_said(layout, reading):
    report = attnctl.check(as_many_heads_as_tokens(layout), heads=8)
    assert (report.agrees, report.reading) == (True, reading)
    assert any(note.startswith("8 heads of 8 tokens: sizes do not tell") for note in report.notes)
    few = {name: array[:, :, :5] for name, array in as_many_heads_as_tokens("bhnd").items()}
    assert not any("sizes do not tell" in note for note in attnctl.check(few, heads=8).notes)
