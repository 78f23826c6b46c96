"""How arrays are read where sizes do not tell: layouts, masks by what they hold, offsets of lengths."""

import json

import numpy as np
import pytest

import attnctl

RNG = np.random.RandomState(0)
BATCH, HEADS, N, D = 2, 3, 4, 5
WHOLE = {name: RNG.standard_normal((BATCH, HEADS, N, D)) for name in "QKV"}
"""(batch, head, n, d)."""

LAID = {
    "nd": lambda a: a[0, 0],
    "hnd": lambda a: a[0],
    "bhnd": lambda a: a,
    "bnhd": lambda a: a.swapaxes(1, 2),
    "bnd": lambda a: a.swapaxes(1, 2).reshape(BATCH, N, HEADS * D),
}


def laid(layout):
    return {name: LAID[layout](array) for name, array in WHOLE.items()}


@pytest.mark.parametrize("layout", LAID)
def test_each_layout_gives_the_same_attention(layout):
    heads = {} if "h" in layout or layout == "nd" else {"heads": HEADS}
    expected = attnctl.attend(WHOLE)["head_outputs"]
    expected = expected if layout.startswith("b") else expected[0, :1] if layout == "nd" else expected[0]
    got = attnctl.attend(laid(layout), layout=layout, **heads)
    assert got["head_outputs"].tolist() == expected.tolist()
    assert "layout" not in got.config
    assert attnctl.check(got).agrees


def test_where_sizes_do_not_tell_the_layout_is_asked_for():
    arrays = {name: RNG.standard_normal((2, 4, 6)) for name in "QKV"}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(arrays, heads=2)
    assert caught.value.problems == (
        (
            "Q: 2 × 4 × 6 with 2 heads may be (head, n, d) or (batch, n, heads·d); "
            "write layout hnd or layout bnd"
        ),
    )
    assert attnctl.attend(arrays, heads=2, layout="hnd")["head_outputs"].shape == (2, 4, 6)
    assert attnctl.attend(arrays, heads=2, layout="bnd")["head_outputs"].shape == (2, 2, 4, 3)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ({"Q": (4, 6)}, {"layout": "bhnd"}, "Q: 4 × 6 has not the 4 axes of layout bhnd"),
        (
            {"Q": (2, 4, 5)},
            {"heads": 2},
            "Q: 2 × 4 × 5, but 2 heads do not divide 5 columns; for (head",
        ),
        ({"X": (2, 4, 6)}, {"layout": "hnd"}, "layout: hnd, but X has no heads; write nd or bnd"),
        ({"Q": (4, 6)}, {"layout": "dn"}, 'layout: "dn" is not one of the choices; write nd, hnd'),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(shapes, options, message):
    arrays = {name: np.ones(shape) for name, shape in shapes.items()}
    if "Q" in arrays:
        arrays |= {"K": arrays["Q"], "V": arrays["Q"]}
    else:
        arrays |= {name: np.ones((6, 6)) for name in ("W_Q", "W_K", "W_V")}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(arrays, **options)
    assert caught.value.problems[0].startswith(message)


# --- masks ---

QKV = {name: RNG.standard_normal((3, 2)) for name in "QKV"}
LOWER = np.tril(np.ones((3, 3)))


@pytest.mark.parametrize("kind", [bool, int, np.uint8, np.float64, np.float32])
def test_a_mask_of_0_and_1_says_who_may_attend_whatever_its_type(kind):
    trace = attnctl.attend({**QKV, "mask": LOWER.astype(kind)})
    assert (trace["attention_weights"][0] > 0).tolist() == (LOWER > 0).tolist()
    assert ("notes" in trace.header) == (np.dtype(kind).kind == "f")


def test_a_mask_of_json_and_of_a_list_is_that_of_a_config(tmp_path):
    (tmp_path / "x.json").write_text(
        json.dumps({**{name: array.tolist() for name, array in QKV.items()}, "mask": LOWER.tolist()})
    )
    from_file = attnctl.attend(attnctl.load(tmp_path / "x.json"))
    from_list = attnctl.attend({**QKV, "mask": LOWER.tolist()})
    configured = attnctl.attend(QKV, mask=LOWER.astype(int))
    weights = [trace["attention_weights"].tolist() for trace in (from_file, from_list, configured)]
    assert weights[0] == weights[1] == weights[2]


def test_other_floats_are_added():
    trace = attnctl.attend({**QKV, "mask": np.where(LOWER > 0, 0.0, -np.inf)})
    assert (trace["attention_weights"][0] > 0).tolist() == (LOWER > 0).tolist()
    assert "bias" in trace
    assert "notes" not in trace.header


def test_zeros_alone_hide_nothing_and_that_is_said():
    trace = attnctl.attend({**QKV, "mask": np.zeros((3, 3))})
    assert (trace["attention_weights"] > 0).all()
    assert trace.header["notes"] == [
        "mask holds nothing but floats 0: they are added to the scores and hide nothing"
    ]


@pytest.mark.parametrize("mask", [[True, True, False], [[True], [True], [False]], [[[True, False, True]]]])
def test_a_mask_with_fewer_axes_is_shown(mask):
    trace = attnctl.attend({**QKV, "mask": np.array(mask)})
    assert "see" in str(trace.table("mask"))


# --- the offset that follows from lengths ---


@pytest.mark.parametrize(
    ("queries", "keys", "lengths", "options", "offset"),
    [
        (4, 4, [3, 4], {}, 0),  # right-padded self-attention
        (5, 4, [3, 4], {}, 0),
        (2, 4, [3, 4], {}, [1, 2]),  # the last tokens of each sentence, and a cache for all
        (4, 4, [3, 4], {"causal_offset": "lengths"}, [-1, 0]),  # ONNX Attention
        (5, 4, [3, 4], {"causal_offset": "lengths"}, [-2, -1]),
        (2, 4, [3, 4], {"causal_offset": 1}, 1),
    ],
)
def test_the_causal_offset_of_lengths(queries, keys, lengths, options, offset):
    arrays = {
        "Q": np.ones((2, 1, queries, 1)),
        "K": np.ones((2, 1, keys, 1)),
        "V": np.ones((2, 1, keys, 1)),
    }
    trace = attnctl.attend({**arrays, "key_lengths": np.array(lengths)}, causal=True, **options)
    assert trace.config["causal_offset"] == offset
    assert attnctl.check(trace).agrees
    assert attnctl.check({**trace, "key_lengths": np.array(lengths)}, causal=True, **options).agrees


def test_an_offset_of_lengths_needs_lengths():
    with pytest.raises(attnctl.AttnError, match="causal_offset: lengths, but no key_lengths; give them"):
        attnctl.attend(QKV, causal=True, causal_offset="lengths")


def test_learned_positions_begin_after_the_cache():
    rng = np.random.RandomState(0)
    table = rng.uniform(-1, 1, (5, 4))
    arrays = {
        "X": rng.uniform(-1, 1, (2, 4)),
        **{f"W_{name}": rng.uniform(-1, 1, (4, 4)) for name in "QKV"},
    }
    arrays |= {name: rng.uniform(-1, 1, (1, 3, 4)) for name in ("past_key", "past_value")}
    assert attnctl.attend(arrays, positions=table.tolist())["positions"].tolist() == table[3:].tolist()


def test_a_dump_of_two_sentences_has_its_positions_once():
    trace = attnctl.run("I love AI", context="AI loves me", positions="sinusoidal")
    again = attnctl.attend(trace, positions="sinusoidal")
    np.testing.assert_allclose(again["output"], trace["output"], rtol=0, atol=1e-12)
