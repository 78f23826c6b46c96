"""Positions that are added to embeddings: used where these are recorded, and else refused."""

import numpy as np
import pytest

import attnctl

RUN = {"heads": 2, "d_model": 8, "positions": "sinusoidal"}
BARE = [{"Q", "K", "V", "attention_weights"}, {"X", "W_Q", "W_K", "W_V", "Q", "K", "V"}]


@pytest.mark.parametrize("kept", BARE, ids=["Q, K, V", "X"])
@pytest.mark.parametrize("positions", ["sinusoidal", {"learned": [[0.0] * 8] * 4}], ids=["sines", "table"])
def test_positions_that_nothing_is_added_to_are_refused(kept, positions):
    trace = attnctl.run("a b c", **RUN)
    arrays = {name: np.array(trace[name]) for name in trace if name in kept}
    with pytest.raises(attnctl.AttnError, match="positions: these positions are added to embeddings"):
        attnctl.check(arrays, heads=2, positions=positions)
    assert attnctl.check(arrays, heads=2).agrees is True


def test_embeddings_show_whether_positions_were_added():
    trace = attnctl.run("a b c", **RUN)
    arrays = {name: np.array(trace[name]) for name in trace if name in {"embeddings", "X"}}
    assert attnctl.check(arrays, positions="sinusoidal").agrees is True
    report = attnctl.check({**arrays, "X": arrays["embeddings"]}, positions="sinusoidal")
    assert report.mistake == "positions-missing"
