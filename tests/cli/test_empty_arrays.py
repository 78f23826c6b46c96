"""Arrays without a number in them, under every name and in every verb: an answer or a refusal."""

import numpy as np
import pytest

from attnctl.math.names import TABLE

SOUND = {"Q": np.ones((2, 3, 4)), "K": np.ones((2, 3, 4)), "V": np.ones((2, 3, 4))}
LINES = {
    "show": ["show", "x.npz", "--heat"],
    "page": ["show", "x.npz", "-o", "x.html"],
    "head": ["show", "x.npz", "--head", "0"],
    "check": ["check", "x.npz", "--full"],
    "stats": ["stats", "x.npz"],
    "diff": ["diff", "x.npz", "x.npz"],
    "attend": ["attend", "x.npz", "--backward"],
    "explain": ["explain", "x.npz", "scores[0,0,0]"],
}
SHAPES = [(0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 0, 3, 4), (0,)]
THEIRS = ["q_proj", "c_attn.weight", "qkv", "attn_weights", "dq", "past_k", "anything"]


@pytest.mark.sample(80)
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("name", [*TABLE, *THEIRS])
def test_an_empty_array_is_an_answer_or_a_refusal(call, name, line):
    for shape in SHAPES:
        np.savez("x.npz", **{**SOUND, name: np.zeros(shape)})
        done = call(*line)
        assert done.code in {0, 1, 2}, (shape, done.err)
        if name in TABLE and not (name.startswith("past") and shape[-2:-1] == (0,)):
            assert f"attnctl: x.npz: {name}: " in done.err, shape


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (1, 1, 3, 4)], ids=str)
@pytest.mark.parametrize(
    "name", ["c_attn.weight", "in_proj_weight", "Wqkv.weight", "query_key_value.weight"]
)
def test_packed_weights_with_other_axes_are_refused(call, name, shape):
    np.savez("x.npz", **{"hidden_states": np.ones((3, 4)), name: np.ones(shape)})
    assert call("attend", "x.npz", "--heads", "2").code == 2
    assert call("check", "x.npz", "--heads", "2").code == 2
