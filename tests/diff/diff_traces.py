"""Traces to compare: made by hand, by a run, or by a dozen lines of NumPy that know nothing of attnctl."""

import numpy as np

from attnctl.math.derivation import Step
from attnctl.math.ops import Unstated
from attnctl.record import Trace

AXES = {
    "X": ("token", "d_model"),
    "W_Q": ("head", "d_model", "d_k"),
    "Q": ("head", "query", "d_k"),
    "V": ("head", "key", "d_v"),
    "V_shared": ("head", "key", "d_v"),
    "scores": ("head", "query", "key"),
    "masked_scores": ("head", "query", "key"),
    "attention_weights": ("head", "query", "key"),
    "head_outputs": ("head", "query", "d_v"),
    "concat": ("query", "heads·d_v"),
    "W_O": ("heads·d_v", "d_model"),
    "b_O": ("d_model",),
    "output": ("query", "d_model"),
}


def trace_of(arrays, words=None, **header):
    """A trace of these arrays; a sentence in `words` gives it tokens."""
    if words is not None:
        header["tokens"] = words.split()
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    steps = {}
    for name, array in arrays.items():
        axes = AXES.get(name, ())
        if array.ndim > len(axes):
            lead = ["batch"] if axes and array.ndim == len(axes) + 1 else None
            axes = (*lead, *axes) if lead else tuple(f"axis {i}" for i in range(array.ndim))
        axes = axes[len(axes) - array.ndim :]
        steps[name] = Step(name, Unstated(), (), axes, "", "")
    return Trace(steps, arrays, header)


def outputs_of(weights, v, w_o=None, b_o=None):
    """Weights ([batch,] head, query, key) and V to everything that follows."""
    z = np.einsum("...hqk,...hkd->...hqd", weights, v)
    concat = np.concatenate([z[..., h, :, :] for h in range(z.shape[-3])], axis=-1)
    arrays = {"V": v, "attention_weights": weights, "head_outputs": z, "concat": concat}
    if w_o is not None:
        arrays |= {"W_O": w_o, "output": concat @ w_o}
    if b_o is not None:
        arrays |= {"b_O": b_o, "output": arrays["output"] + b_o}
    return arrays
