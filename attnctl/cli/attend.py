"""attnctl attend: the operator itself, on anyone's arrays."""

# Annotations are types here, which `command` reads: as text, each would be compiled again.
from attnctl.base.errors import AttnError
from attnctl.base.values import words
from attnctl.cli import options
from attnctl.cli.model import NOT_BESIDE_MODEL, OF_OURS, SECTION, run_layers
from attnctl.cli.options import argument, command, option
from attnctl.math.names import HIDDEN, MEMORY, OUTPUT
from attnctl.sources import DUMP, OF_SIGN, open_dump

SUFFIXES = " ".join(sign for sign in OF_SIGN if OF_SIGN[sign].kind == DUMP and sign[:1] == ".")


@command(
    "attnctl attend qkv.npz --heads 8 --causal --step output -o output.npz",
    "attnctl attend theirs.safetensors --name query=Q --name key=K --name value=V",
    "attnctl attend large.npz --step head_outputs --cost",
)
def attend(  # noqa: PLR0913  (options, and groups of them)
    *,
    file: str = argument(f"Arrays ({SUFFIXES}), or - for stdin."),
    name: options.Name = None,
    arrays: options.Arrays,
    config: options.Config = None,
    attention: options.Attention,
    gradients: options.Gradients,
    model: str | None = option(
        "The model whose layer attends to `hidden`: a folder, a GGUF file, or an id of the hub.",
        metavar="DIR",
        terms=[
            options.bars([*OF_OURS, "cost"], NOT_BESIDE_MODEL),
            options.needs("layer", "--layer: which layer of the model? --layer 3"),
        ],
        section=SECTION,
    ),
    adapter: options.Adapter = None,
    layer: str | None = option(
        "Its layer: 3, -1, decoder.1, cross.1; without --model that of a state dict.",
        metavar="N",
        section=SECTION,
    ),
    max_memory: options.MemoryToRun = None,
    engine: str | None = option(
        "torch: head outputs by torch's own kernel, where it is installed; scores and weights it has not.",
        words("torch"),
        section=options.TO_RUN,
        terms=[
            options.excludes("model", "--engine torch: of arrays alone; leave it out with --model"),
            options.excludes("cost", "--engine torch: nothing is carried out with --cost; leave one out"),
        ],
    ),
    cost: options.Cost = False,
    edits: options.Edits,
    view: options.ViewOptions,
    output: options.OutputOptions,
) -> None:
    """Attend over arrays: the reference to compare a kernel with.

    The file holds Q, K and V, or X (and memory for the keys) with W_Q, W_K, W_V [W_O, b_Q b_K b_V b_O].
    Optional arrays are mask, bias, sink (a number for each head), Q_norm_weight and K_norm_weight (with
    --qk-norm), k_scale and v_scale (what K and V in few bits are multiplied by), bias_table (head, number)
    with bias_index (query, key), position_ids, past_key, past_value and key_lengths; with --backward also
    d_output (or do, grad_output), the gradient to start from.

    Arrays are (n, d), (head, n, d), (batch, head, n, d), or, with --heads, (n, heads·d) and
    (batch, n, heads·d); (batch, n, head, d) if nothing else fits. --layout decides where the sizes are
    ambiguous. Weights are (d_model, heads·d), or (heads·d, d_model) as in nn.Linear if their sizes show it.

    A boolean mask, or one of 0 and 1 only, is true where a query MAY attend; any other float mask is added
    to the scores; keys beyond the end of a mask are hidden. Scores are scaled, soft-capped, biased and
    masked before softmax. A query that may attend to nothing gets zeros.
    """
    from attnctl.cli.output import carry_out, progress
    from attnctl.inputs.config.flags import settings_from
    from attnctl.sources.dump import OfArrays, settings_to_attend
    from attnctl.sources.sentence import Arguments

    with progress("reading"):
        trace = open_dump(file, Arguments(rename=options.renames(name or []))).trace()
    flags = {**arrays, **attention, **gradients, **edits, "max_memory": max_memory}
    if model is None:
        asked = OfArrays(
            trace,
            settings_to_attend(trace, config, flags),
            options.layer_number(layer),
            by_torch=engine is not None,
        )
        carry_out([asked], cost, view, output)
        return
    from attnctl.inputs.arrays.foreign import variable_of
    from attnctl.models.run import ModelInput
    from attnctl.models.source import join_name
    from attnctl.sources.model import Layers

    if HIDDEN not in trace:
        raise AttnError(f"no {HIDDEN} in it: what came into the layer; it has {', '.join(trace)}")
    begun = next((trace[name] for name in trace if variable_of(name) in {"o", "out", OUTPUT}), None)
    given = ModelInput(hidden=trace[HIDDEN], memory=trace.get(MEMORY), d_output=begun)
    source = Layers(
        join_name(model, adapter), given, layer, settings_from(None, {"dtype": "float32", **flags})
    )
    run_layers([source], layer, cost, view, output)
