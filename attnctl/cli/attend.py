"""attnctl attend: the operator itself, on anyone's arrays."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from attnctl.base.errors import AttnError
from attnctl.cli.app import make_app
from attnctl.cli.model import NOT_BESIDE_MODEL, OF_OURS, SECTION, run_layers
from attnctl.cli.options import (
    SECTIONS,
    ArrayOptions,
    AttentionOptions,
    ConfigOption,
    CostOptions,
    EditOptions,
    GradientOptions,
    NameOption,
    OptionTerm,
    OutputOptions,
    ViewOptions,
    bars,
    command,
    is_asked,
    layer_number,
    option,
    renames,
)
from attnctl.math.names import HIDDEN, MEMORY, OUTPUT
from attnctl.sources import DUMP, OF_SIGN

app = make_app()

SUFFIXES = " ".join(sign for sign in OF_SIGN if OF_SIGN[sign].kind == DUMP and sign[:1] == ".")


WHICH_LAYER = OptionTerm(
    lambda given: () if is_asked(given, "layer") else ("layer",), "which layer of the model? --layer 3"
)


class LayerOptions(NamedTuple):
    model: Annotated[
        str | None,
        option(
            "The model whose layer attends to `hidden`: a folder, or an id of the hub.",
            metavar="DIR",
            terms=[bars([*OF_OURS, "cost"], NOT_BESIDE_MODEL), WHICH_LAYER],
        ),
    ] = None
    layer: Annotated[
        str | None,
        option("Its layer: 3, -1, decoder.1, cross.1; without --model that of a state dict.", metavar="N"),
    ] = None


SECTIONS[LayerOptions] = SECTION


@command(
    app,
    "attnctl attend qkv.npz --heads 8 --causal --step output -o output.npz",
    "attnctl attend theirs.safetensors --name query=Q --name key=K --name value=V",
    "attnctl attend large.npz --step head_outputs --cost",
)
def attend(  # noqa: PLR0913  (a group of options each)
    *,
    file: Annotated[str, typer.Argument(help=f"Arrays ({SUFFIXES}), or - for stdin.")],
    name: NameOption = None,
    arrays: ArrayOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    gradients: GradientOptions,
    model: LayerOptions,
    cost: CostOptions,
    edits: EditOptions,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Attend over arrays: the reference to hold a kernel against.

    The file holds Q, K and V, or X (and memory for the keys) with W_Q, W_K, W_V [W_O, b_Q b_K b_V
    b_O]; beside them, where wanted, mask, bias, sink (a number for each head), Q_norm_weight and
    K_norm_weight (with --qk-norm), past_key, past_value and key_lengths; with --backward d_output (or do,
    grad_output), the gradient to begin with.

    Arrays are (n, d), (head, n, d), (batch, head, n, d), or (n, heads·d) and (batch, n, heads·d)
    with --heads; (batch, n, head, d) where nothing else fits. --layout says which where sizes do not
    tell. Weights are (d_model, heads·d), or
    (heads·d, d_model) as nn.Linear keeps them where their sides tell.

    A boolean mask is true where a query MAY attend, and so is one of 0 and 1 alone; any other
    float mask is added to the scores; one that is shorter than the keys hides the rest. Scores are
    scaled, soft-capped, biased, masked, then go through softmax. A query that may see nothing
    gets zeros.
    """
    from attnctl.cli.output import carry_out, progress
    from attnctl.inputs.config.flags import settings_from
    from attnctl.sources.dump import Dump, OfArrays
    from attnctl.sources.sentence import Arguments

    with progress("reading"):
        trace = Dump(file, Arguments(rename=renames(name or []))).trace()
    flags = {**arrays, **attention, **gradients, **edits, "max_memory": cost.max_memory}
    if model.model is None:
        source = OfArrays(trace, settings_from(config, flags), layer_number(model.layer))
        carry_out([source], cost, view, output)
        return
    from attnctl.inputs.arrays.foreign import variable_of
    from attnctl.models.run import ModelInput
    from attnctl.sources.model import Layers

    if HIDDEN not in trace:
        raise AttnError(f"no {HIDDEN} in it: what came into the layer; it has {', '.join(trace)}")
    begun = next((trace[name] for name in trace if variable_of(name) in {"o", "out", OUTPUT}), None)
    given = ModelInput(hidden=trace[HIDDEN], memory=trace.get(MEMORY), d_output=begun)
    layer = Layers(model.model, given, model.layer, settings_from(None, {"dtype": "float32", **flags}))
    run_layers([layer], model.layer, cost, view, output)
