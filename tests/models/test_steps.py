"""The steps that models add: explained, costed, tiled and dumped like the rest."""

import numpy as np
import pytest
from checkpoints import ROOT, expected_of

from attnctl.formats import write
from attnctl.math import names
from attnctl.math.arithmetic import evaluate, numbers
from attnctl.math.derivation import LayerParts, Rotary, Variant, derive, derive_head
from attnctl.math.engine import carry_out
from attnctl.math.engine.cost import cost
from attnctl.math.filling import filler, form_of
from attnctl.math.kind import HeadNorm
from attnctl.math.ops import Given, LayerNorm
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import embed_ids
from attnctl.models.source import open_model
from attnctl.record import Trace
from attnctl.store.source import read_one

NAMES = [
    "gpt-oss",
    "gemma2",
    "deepseek-v3",
    "olmo2",
    "t5",
    "falcon-alibi",
    "bloom",
    "phi",
    "stablelm",
    "cohere",
    "qwen3_next",
    "dinov2",
    "gemma4_text",
    "gemma3n_text",
    "granitemoehybrid",
    "lfm2",
    "deberta-v2",
    "bitnet",
]


def layer_of(name, dtype="float64"):
    """What a run of layer 0 of a checkpoint is carried out from."""
    model, expected = open_model(str(ROOT / name), dtype=dtype), expected_of(name)
    images = "input_ids" not in expected
    start = expected["hidden_0"] if images else embed_ids(model, expected["input_ids"].tolist())
    return prepare_attention(model.layer(0), start)


def gated():
    """A layer with a gate, its norms after the rotation: no family in the list has both."""
    draw = np.random.RandomState(0)
    arrays = {
        "hidden": draw.normal(size=(5, 6)),
        **{f"W_{name}": draw.normal(size=(2, 6, 4)) for name in "QKV"},
        "W_gate": draw.normal(size=(6, 8)),
        "b_gate": draw.normal(size=8),
        "W_O": draw.normal(size=(8, 6)),
        "Q_norm_weight": draw.normal(size=(2, 4)),
        "K_norm_weight": draw.normal(size=4),
    }
    given, axes = dict.fromkeys(arrays, "given"), {"K_norm_weight": ("d_k",)}
    norms, layer = HeadNorm(after_rotation=True), LayerParts(residual=0.5)
    variant = Variant(given, d_k=4, rotary=Rotary(), axes=axes, layer=layer, qk_norm=norms, gate=True)
    return derive(variant), arrays


def head():
    """What follows the last layer, its logits both scaled and capped: no family in the list has both."""
    draw = np.random.RandomState(0)
    shapes = {"hidden": (5, 6), "norm_weight": (6,), "norm_bias": (6,), "W_U": (6, 9), "b_U": (9,)}
    arrays = {name: draw.normal(size=shape) for name, shape in shapes.items()}
    return derive_head(dict.fromkeys(arrays, "given"), LayerNorm(1e-5), 0.5, 2.0), arrays


def traces():
    """The trace of every case, in float64."""
    for name in NAMES:
        yield name, layer_of(name).run()
    derivation, arrays = gated()
    values = carry_out(derivation, arrays).values
    yield "gated", Trace({step.name: step for step in derivation}, values)
    derivation, arrays = head()
    values = carry_out(derivation, arrays).values
    yield "head", Trace({step.name: step for step in derivation}, values)


TRACES = dict(traces())


@pytest.mark.parametrize("name", TRACES)
def test_cells_are_explained(name):
    trace = TRACES[name]
    draw = np.random.RandomState(0)
    for step in trace.steps.values():
        if isinstance(step.op, Given):
            continue
        inputs, array = [trace[each] for each in step.reads], trace[step.name]
        expr_of = filler(form_of(step.op, array.ndim, inputs), inputs)
        for _ in range(4):
            cell = tuple(int(draw.randint(size)) for size in array.shape)
            expr = expr_of(cell)
            found, _ = evaluate(expr, 2.0**-53)
            assert found == pytest.approx(float(array[cell]), rel=1e-9, abs=1e-9), (step.name, cell)
            for number in numbers(expr):
                if number.source:
                    position, place = number.source
                    assert float(inputs[position][place]) == number.value


def test_the_gate_and_the_norm_after_the_rotation():
    trace = TRACES["gated"]
    gate = trace["X"] @ trace["W_gate"] + trace["b_gate"]
    np.testing.assert_allclose(trace["gated"], trace["concat"] / (1 + np.exp(-gate)))
    assert trace.steps["Q_normed"].inputs[0] == "Q_rotated"
    assert trace.steps["scores"].inputs == ("Q_normed", "K_normed")
    np.testing.assert_allclose(trace["residual"], trace["hidden"] + 0.5 * trace["output"])
    assert trace.steps["residual"].formula == "hidden + 0.5 · output"
    assert TRACES["gpt-oss"].steps["residual"].formula == "hidden + output"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (4, 100)])
def test_tiles_give_the_same(name, tile):
    plan = layer_of(name)
    wanted = ["output", "residual"]
    whole = carry_out(plan.derivation, plan.given).values
    n_by_n = [name for name in ("attention_weights", "decayed_scores") if name in whole]
    for keep in (wanted, [*wanted, *n_by_n]):
        tiled = carry_out(plan.derivation, plan.given, keep=keep, tile=tile).values
        for step in keep:
            np.testing.assert_allclose(tiled[step], whole[step], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tile", [(2, 3), (100, 100)])
def test_sink_weights_alone_are_tiled_too(tile):
    plan = layer_of("gpt-oss")
    whole = carry_out(plan.derivation, plan.given).values
    alone = carry_out(plan.derivation, plan.given, keep=["sink_weights"], tile=tile).values
    np.testing.assert_allclose(alone["sink_weights"], whole["sink_weights"], rtol=1e-9)
    rows = whole["attention_weights"].sum(axis=-1) + whole["sink_weights"]
    np.testing.assert_allclose(rows, 1)
    assert (whole["sink_weights"] > 0).all()


@pytest.mark.parametrize("name", TRACES)
def test_shapes_are_known_beforehand(name):
    trace = TRACES[name]
    given = {step: array.shape for step, array in trace.items() if isinstance(trace.steps[step].op, Given)}
    for each in cost(trace.derivation, given, 8):
        assert each.shape == trace[each.name].shape, each.name
        assert (
            each.flops > 0
            or not each.bytes
            or each.name in given
            or type(trace.steps[each.name].op).__name__ in {"Copy", "Merge", "Repeat", "Hide", "Beside"}
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
@pytest.mark.parametrize("name", TRACES)
def test_dumps_come_back(name, suffix, tmp_path):
    path = tmp_path / f"dump{suffix}"
    write([TRACES[name]], path)
    back = read_one(str(path))
    assert back.steps == TRACES[name].steps
    assert all((back[step] == TRACES[name][step]).all() for step in back)


def test_every_name_of_models_is_a_step_of_some_model():
    seen = {name for trace in TRACES.values() for name in trace}
    assert seen >= set(names.where(lambda row: row.model and not row.leaf and not row.gradient))


@pytest.mark.parametrize("name", TRACES)
def test_steps_have_the_axes_of_the_table_and_are_read(name):
    trace = TRACES[name]
    read = {each for step in trace.steps.values() for each in step.inputs}
    assert set(trace) - read <= {"residual", "sink_weights", "logits"}
    for step in trace.steps.values():
        axes = names.TABLE[step.name].axes
        assert step.axes == axes[-len(step.axes) :]
