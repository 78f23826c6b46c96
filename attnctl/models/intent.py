"""The intent of a model's layer, held beside someone's arrays, and the first wrong layer of a port."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.arrays.foreign import variable_of
from attnctl.inputs.arrays.layout import search
from attnctl.inputs.arrays.reader import as_array, complete
from attnctl.inputs.plan.intended import Intent, aside
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Variant, derive
from attnctl.math.names import HIDDEN, MEMORY, TABLE, X, gradient_of
from attnctl.math.ops import Unstated
from attnctl.models.attention import bfloat16, prepare_attention
from attnctl.models.layer import Model
from attnctl.record.trace import Trace

USUAL = {
    "Q": "q query queries q_proj query_states query_layer q_states",
    "K": "k key keys k_proj key_states key_layer k_states",
    "V": "v value values v_proj value_states value_layer v_states",
    "X": "x normed hidden_normed normed_hidden attn_input attention_input input_layernorm ln_1 ln1",
    "hidden": "hidden_states hidden_in layer_input residual_in resid_pre inputs",
    "Q_normed": "q_norm q_normed query_normed",
    "K_normed": "k_norm k_normed key_normed",
    "Q_rotated": "q_rot q_rope q_rotated q_embed query_rotated rotated_q",
    "K_rotated": "k_rot k_rope k_rotated k_embed key_rotated rotated_k",
    "scores": "attn_scores qk logits attention_scores",
    "scaled_scores": "scaled scaled_logits",
    "attention_weights": "attn attn_weights attn_probs probs weights attention_probs attention pattern",
    "head_outputs": "z context context_layer attn_heads",
    "concat": "attn_concat merged context_merged",
    "output": "attn_output attn_out attention_output o_proj out out_proj",
    "residual": "resid_mid residual_out hidden_after_attention",
    "sink": "sinks attn_sinks attention_sinks",
}
"""What programs call the steps, in small letters."""


def usual_names(names: Sequence[str]) -> dict[str, str]:
    """The names that programs use for our steps: theirs to ours, where ours is not taken."""
    theirs = {each: ours for ours, words in USUAL.items() for each in words.split()}
    found: dict[str, str] = {}
    for name in names:
        forward = variable_of(name).lower()
        of_forward = forward if forward in TABLE else theirs.get(forward)
        ours = theirs.get(name.lower()) or (gradient_of(of_forward) if of_forward else None)
        if name not in TABLE and ours and ours not in names and ours not in found.values():
            found[name] = ours
    return found


def intent_of_layer(
    model: Model, index: int, trace: Trace, cross: bool = False, first: Array | None = None
) -> Intent:
    """Someone's arrays in our layout beside the model's weights, and the derivation of the layer.

    `first` is what comes into layer 0, where the tokens say it. What the arrays hold of the
    model's own numbers is left aside: the model says what is meant. Raises AttnError for an array
    that does not go with the model's sizes.
    """
    d = model.description
    renamed = usual_names(list(trace))
    arrays = {renamed.get(name, name): as_array(name, np.asarray(trace[name])) for name in trace}
    known = {name: array for name, array in arrays.items() if name in TABLE}
    if first is not None:
        known.setdefault(HIDDEN, first)
    recorded = {name: array for name, array in known.items() if not is_weight(name)}
    sizes = {
        "head": d["heads"],
        "kv_head": d["kv_heads"],
        "d_model": d["width"],
        "d_k": d["d_k"],
        "d_v": d["d_v"],
    }
    sizes["d_out"] = d["width"]
    reading = search({name: array.shape for name, array in recorded.items()}, sizes)
    if "batch" in reading.sizes:
        raise AttnError(f"a batch of {reading.sizes['batch']}: give the arrays of one sequence")
    ours = {name: reading.lay_out(name, array) for name, array in recorded.items()}
    whole = complete(reading.sizes, {X: 0, **recorded})
    plan = prepare_attention(model.layer(index), *rows_of(model, ours, whole, cross), cross=cross)
    gradients = any(TABLE[name].gradient for name in ours)
    derivation = starting(replace(plan.variant, backward=gradients), ours)
    weights = {name: plan.given[name] for name in derivation.given if is_weight(name)}
    narrowed = narrowing(list(ours.values()))
    held = {**{name: narrowed(array) for name, array in weights.items()}, **ours}
    order = [step.name for step in derivation if step.name in held]
    steps = {name: derivation[name] for name in order}
    steps |= {name: aside(name, held[name]) for name in held if name not in steps}
    return Intent(Trace(steps, held, trace.header), whole, derivation)


def narrowing(recorded: Sequence[Array]) -> Callable[[Array], Array]:
    """The rounding that a port in the type of these arrays does to the model's numbers, if any."""
    floats = [array for array in recorded if array.dtype.kind == "f" and array.size]
    if floats and all(array.dtype == np.float16 for array in floats):
        return lambda array: array.astype(np.float16)
    if floats and all(np.array_equal(bfloat16(array), array) for array in floats):
        return bfloat16
    return lambda array: array.astype(np.float64)


def is_weight(name: str) -> bool:
    row = TABLE[name]
    return row.leaf and row.once and not row.gradient


def rows_of(
    model: Model, recorded: Mapping[str, Array], sizes: Mapping[str, int], cross: bool
) -> tuple[Array, None, Array | None]:
    """Rows as many as the arrays have, for the shapes that the derivation needs."""
    width = model.description["width"]
    hidden = recorded.get(HIDDEN, np.zeros((sizes["query"], width)))
    memory = recorded.get(MEMORY, np.zeros((sizes.get("key", sizes["query"]), width))) if cross else None
    return hidden.astype(model.dtype), None, memory


def starting(variant: Variant, recorded: Mapping[str, Array]) -> Derivation:
    """The derivation from `hidden` on, or from X where only that is recorded."""
    whole = derive(variant)
    if HIDDEN in recorded or X not in recorded:
        return whole
    steps = [
        replace(step, op=Unstated(), inputs=()) if step.name == X else step
        for step in whole
        if step.name != HIDDEN and not step.name.startswith("norm_")
    ]
    return Derivation(tuple(step for step in steps if HIDDEN not in step.inputs))
