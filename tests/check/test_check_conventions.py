"""What each array of someone's file is, and where its numbers go: by its name, its shape, and others."""

import numpy as np
import pytest

from attnctl import AttnError
from attnctl.inputs.arrays.foreign import beside_model, read_foreign

X = np.arange(48.0).reshape(6, 8)
PACKED = np.arange(24.0)
WEIGHT = np.arange(192.0).reshape(24, 8)


def zeros(*shape):
    return np.zeros(shape)


SHAPES = [
    ("q_norm", (4,), {}, "Q_norm_weight"),
    ("k_layernorm", (4,), {}, "K_norm_weight"),
    ("k_norm", (2, 6, 4), {}, "K_normed"),
    ("q_norm.weight", (4,), {}, "Q_norm_weight"),
    ("attn_output", (2, 6, 4), {"V": (2, 6, 4)}, "head_outputs"),
    ("attn_output", (2, 6, 4), {"V": (2, 6, 4), "W_O": (8, 8)}, "output"),
    ("attn_output", (6, 8), {"V": (2, 6, 4)}, "output"),
    ("attn_output", (1, 2, 6, 4), {}, "head_outputs"),
    ("attn_output", (1, 2, 6, 4), {"head_outputs": (1, 2, 6, 4)}, "output"),
    ("wq", (8, 4), {"X": (6, 8)}, "W_Q"),
    ("wo", (4, 8), {"X": (6, 8)}, "W_O"),
    ("wq", (6, 4), {"X": (6, 8)}, "Q"),
    ("attn.wq", (6, 8), {"X": (6, 8)}, "Q"),
    ("layers.3.self_attn.q_proj", (6, 8), {}, "Q"),
    ("logits", (6, 9), {"q": (6, 4), "k": (9, 4)}, "scores"),
    ("logits", (6,), {"q": (6, 4), "k": (9, 4)}, "logits"),
    ("logits", (6, 50), {"q": (6, 4), "k": (9, 4)}, "logits"),
]
"""A name, its shape, what is beside it, and which of our arrays it is."""


@pytest.mark.parametrize(("theirs", "shape", "beside", "ours"), SHAPES)
def test_an_array_is_what_its_shape_says_where_its_name_does_not(theirs, shape, beside, ours):
    found = {name: zeros(*size) for name, size in beside.items()} | {theirs: np.ones(shape)}
    arrays = read_foreign(found).arrays
    assert [name for name, array in arrays.items() if array.all()] == [ours]


def test_packed_rows_are_shared_out_as_heads_say():
    """24 columns: 8 each; of 4 heads and 2 of K and V 12, 6 and 6; by head 4 for each of 2 heads of 3."""
    equal = read_foreign({"qkv.bias": PACKED}).arrays
    assert [equal[name].tolist() for name in ("b_Q", "b_K", "b_V")] == [
        [*range(8)],
        [*range(8, 16)],
        [*range(16, 24)],
    ]

    shared = read_foreign({"qkv.bias": PACKED}, None, 4, 2).arrays
    assert [shared[name][[0, -1]].tolist() for name in ("b_Q", "b_K", "b_V")] == [
        [0, 11],
        [12, 17],
        [18, 23],
    ]

    by_head = read_foreign({"query_key_value.bias": PACKED}, None, 2, None).arrays
    assert by_head["b_Q"].tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert by_head["b_K"].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]
    assert by_head["b_V"].tolist() == [8, 9, 10, 11, 20, 21, 22, 23]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("qkv", (None, 2)), ("qkv", (5, 2)), ("query_key_value", (16, None)), ("query_key_value", ())],
)
def test_packed_rows_that_heads_do_not_share_are_left_out(name, counts):
    read = read_foreign({f"{name}.bias": PACKED}, None, *counts)
    assert read.arrays == {}
    assert read.notes == [f"{name}.bias is left out: --heads N says how many heads share its 3"]


def test_matrices_are_turned_where_their_layout_is_of_linear_layers():
    linear = read_foreign({"q_proj.weight": WEIGHT}).arrays["W_Q"]
    assert linear.shape == (8, 24)
    conv = read_foreign({"c_attn.weight": WEIGHT.T}).arrays
    assert conv["W_K"].tolist() == WEIGHT.T[:, 8:16].tolist()
    nano = read_foreign({"c_attn.weight": WEIGHT, "c_proj.weight": WEIGHT[:8]}).arrays
    assert nano["W_K"].tolist() == WEIGHT[8:16].T.tolist()
    assert nano["W_O"].tolist() == WEIGHT[:8].T.tolist()


@pytest.mark.parametrize("axis", [0, 1])
def test_pages_of_both_are_taken_apart_along_the_axis_of_two(axis):
    k, v = np.ones((5, 3, 1, 4)), np.zeros((5, 3, 1, 4))
    read = read_foreign({"kv_cache": np.stack([k, v], axis=axis), "block_table": zeros(1, 2)}).arrays
    assert read["key_pages"].all()
    assert not read["value_pages"].any()


def test_gradients_are_read_as_what_they_are_gradients_by():
    read = read_foreign({"q": X, "q.grad": X + 1, "dk": X + 2, "qkv.bias": PACKED, "grad_out": X + 3})
    assert read.arrays["d_Q"].tolist() == (X + 1).tolist()
    assert read.arrays["d_K"].tolist() == (X + 2).tolist()
    assert read.arrays["d_output"].tolist() == (X + 3).tolist()
    assert (read.read["d_Q"], read.read["d_K"], read.read["Q"]) == ("q.grad", "dk", "q")


def test_a_mask_goes_with_one_of_padding_and_nothing_else_with_its_like():
    hidden = np.array([[False, True], [False, False]])
    padding = np.array([[True, False]])  # the first key of the one member
    read = read_foreign({"in_proj_weight": WEIGHT, "attn_mask": hidden, "key_padding_mask": padding})
    assert read.arrays["mask"].tolist() == [[[[False, False], [False, True]]]]

    twice = read_foreign({"q_proj.weight": X, "to_q.weight": X})
    assert [*twice.arrays] == ["W_Q"]
    assert twice.notes == ["to_q.weight is left out: W_Q is there already"]


def test_what_v_alone_is_made_of_is_left_out_with_its_weights():
    module = {"in_proj_weight": WEIGHT, "query": X, "key": X + 1}
    same = read_foreign({**module, "value": X + 1})
    assert "W_V" in same.arrays
    assert same.notes == []

    other = read_foreign({**module, "value": X + 2})
    assert "W_V" not in other.arrays
    assert other.notes == ["value is left out: V is made of it alone; record V instead"]


def test_an_array_that_is_handed_over_twice_is_no_memory():
    module = {"in_proj_weight": WEIGHT, "query": X}
    assert "memory" not in read_foreign({**module, "key": X.copy()}).arrays
    assert "memory" in read_foreign({**module, "key": X + 1}).arrays


LAYERS = {"h.0.attn.q": X, "h.2.attn.q": X + 1, "positions": X}


@pytest.mark.parametrize(("layer", "plus"), [(0, 0), (2, 1)])
def test_one_layer_is_read_and_what_is_of_none(layer, plus):
    read = read_foreign(LAYERS, layer).arrays
    assert read["Q"].tolist() == (X + plus).tolist()
    assert sorted(read) == ["Q", "positions"]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (None, "layers 0 to 2; --layer N says which to read"),
        (1, "--layer 1: the arrays are of layers 0 to 2"),
    ],
)
def test_a_layer_that_is_not_said_or_not_there_is_refused(layer, words):
    with pytest.raises(AttnError, match=words):
        read_foreign(LAYERS, layer)


@pytest.mark.parametrize("cross", [False, True])
def test_beside_a_model_its_words_come_first_and_a_memory_only_where_one_is_read(cross):
    names = ["hidden_states", "weights", "grad_weights", "encoder_hidden_states", "ln1", "q_proj", "Q"]
    theirs = beside_model(names, cross=cross)
    assert theirs == {
        "hidden_states": "hidden",
        "weights": "attention_weights",
        "grad_weights": "d_attention_weights",
        "ln1": "X",
        **({"encoder_hidden_states": "memory"} if cross else {}),
    }
