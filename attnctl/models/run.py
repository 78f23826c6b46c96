"""A run of a model: the traces of the layers that are asked for, and the map of all heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import quote
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import Plan, what_if_of, with_gradients
from attnctl.math import Array, Keep, Progress
from attnctl.math.kind import GRADIENT_SETTINGS
from attnctl.math.names import (
    FADED,
    MLP_OUTPUT,
    OUTPUT,
    RESIDUAL,
    SINK_WEIGHTS,
    TABLE,
    WEIGHTS,
    X,
    gradient_of,
    shares_in,
)
from attnctl.math.ops import Given
from attnctl.math.steps import Step
from attnctl.models.attention import blank_memory, blank_rows, prepare_attention, rules_of
from attnctl.models.forward import (
    Change,
    attend_plainly,
    embed_ids,
    final_norm,
    finish,
    require_rows,
    states,
    through,
)
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.mixing import head_sizes, mixer_of
from attnctl.models.source import Tokens, Words, folder_of, open_model, plain_ids, stacks_in
from attnctl.models.stream import steps_to_keep
from attnctl.record import Trace
from attnctl.record.edits import WhatIf

LAYER = re.compile(r"(?:(?P<part>[a-z]+)\.)?(?P<number>-?\d{1,9}|all)")
IN_LAYER = re.compile(r"\s*(-?\d{1,9})\s*:(.+)", re.DOTALL)
CROSS = "cross"
"""What layers are called that attend to another sequence: cross.0 is that of the decoder's layer 0."""


@dataclass(frozen=True)
class ModelInput:
    """The input of a model: a text or ids, for a decoder two of them, or what came into a layer."""

    text: str | None = None
    ids: tuple[int, ...] | None = None
    pair: str | None = None
    context: str | None = None
    context_ids: tuple[int, ...] | None = None
    hidden: Array | None = None
    memory: Array | None = None
    d_output: Array | None = None
    tokens: Tokens | None = None
    """Those that a text was cut into, where that is done."""
    chat: bool = False
    """Whether the text is a message to a model that answers."""
    image: str | None = None
    """The file of a picture, for models that see."""


class WantedLayers(NamedTuple):
    """The layers that --layer names, of one part of a model."""

    part: str
    numbers: list[int]
    cross: bool
    """Whether their attention to memory is meant."""


def wanted_layers(text: str, count: Callable[[str], int]) -> WantedLayers:
    """Read '3', '0,2', '-1', 'all', 'decoder.1' or 'cross.all'; `count` is that of the layers of a part.

    Raises AttnError for what names none, and for layers of several parts.
    """
    parts: set[str] = set()
    named: list[str] = []
    for word in text.split(","):
        match = LAYER.fullmatch(word.strip())
        if not match:
            usage = "write 3, 0,2, -1 or all; decoder.1 or cross.1 for a decoder"
            raise AttnError(f"--layer: {quote(text)}; {usage}")
        parts.add(match["part"] or "")
        named.append(match["number"])
    if len(parts) > 1:
        raise AttnError(f"--layer: {quote(text)} names layers of several parts; give one at a time")

    (name,) = parts
    part = "decoder" if name == CROSS else name
    total = count(part)
    layers: set[int] = set()
    for number in named:
        if number == "all":
            layers |= set(range(total))
        elif -total <= int(number) < total:
            layers.add(int(number) % total)
        else:
            raise AttnError(f"--layer: no layer {int(number)}; there are {total}, from 0 to {total - 1}")

    return WantedLayers(part, sorted(layers), name == CROSS)


def run_model(
    name: str,
    source: ModelInput,
    layers: str = "all",
    settings: Settings | None = None,
    keep: Keep = None,
    moved: Progress | None = None,
) -> list[Trace]:
    """The trace of each layer that is asked for, in order.

    An edit (of `settings`) is made in the layer that it names, 3:head_outputs[1]=0, or in the first of
    them, and flows into the later ones. With `hidden` given, that is what came into the one layer.

    Raises AttnError for what the model does not have, what it is not, and what does not fit memory.
    """
    settings = settings or Settings(dtype="float32")
    if source.image is not None:
        layers = of_pictures(name, layers)
    runner, part = begin_run(name, layers, settings)
    runner = replace(runner, keep=keep, moved=moved, d_output=source.d_output)
    if source.hidden is not None:
        return runner.of_hidden(source)
    if source.image is not None:
        refuse_context(source)
        return list(runner.traces(runner.begin_image(source.image), None))

    tokens = tokens_of(name, source)
    d = runner.model.description
    context = memory = None
    if d.part and d.crosses:
        context = tokens_of(name, source, context=True)
        memory = encode_context(part(""), context)
    else:
        refuse_context(source)

    return list(runner.traces(runner.begin(tokens, context), memory))


VISION = "vision"
"""The part of a model of texts and pictures that sees."""


def of_pictures(name: str, layers: str) -> str:
    """The layers as they are named, those of the part that sees where no part is."""
    if "." in layers or VISION not in stacks_in(name):
        return layers
    return ",".join(f"{VISION}.{layer.strip()}" for layer in layers.split(","))


def encode_context(encoder: Model, context: Tokens) -> Array:
    """What a decoder's layers attend to: the rows that leave its encoder."""
    memory = embed_ids(encoder, context.ids, context.segments)
    for _, hidden in states(encoder, memory):
        memory = hidden
    return final_norm(encoder, memory)


def refuse_context(source: ModelInput) -> None:
    flags = {"--context": source.context, "--context-ids": source.context_ids}
    raise_all(
        f"{flag}: only a decoder that attends to an encoder has that"
        for flag, value in flags.items()
        if value is not None
    )


def plans(name: str, source: ModelInput, layers: str, settings: Settings) -> list[Plan]:
    """The attention of each layer that is asked for, to be costed: nothing is computed."""
    if source.image is not None:
        raise AttnError("--cost: of a picture's tokens nothing is costed; leave it out")
    runner, _ = begin_run(name, layers, settings)
    model = runner.model
    model.checkpoint.looks = False
    tokens = tokens_of(name, source)
    context = tokens_of(name, source, context=True) if runner.cross else tokens
    hidden = blank_rows(model, len(tokens.ids))
    memory = blank_memory(model, len(context.ids))
    return [runner.plan(model.layer(index), hidden, memory, runner.cross) for index in runner.layers]


def begin_run(name: str, layers: str, settings: Settings) -> tuple[Runner, Callable[[str], Model]]:
    """The run of the layers that are asked for, and the parts of the model, each opened once."""
    part = cache(lambda of: open_model(name, of, settings.dtype, settings.max_memory))
    wanted = wanted_layers(layers, lambda of: len(part(of).description.layers))
    model = part(wanted.part)
    d = model.description

    numbers = wanted.numbers
    if "all" in layers:
        numbers = [index for index in numbers if index in d.attending]
        if not numbers:
            raise AttnError(f"--layer: {d.family}: no layer attends")
    if wanted.cross and not d.crosses:
        raise AttnError(f"--layer: {d.family} has no attention to another sequence")
    if settings.backward and len(numbers) > 1:
        raise AttnError("--backward: gradients are those of one layer's attention; name it: --layer 0")

    edits = edits_by_layer(settings, numbers, len(d.layers))
    return Runner(model, numbers, wanted.cross, settings=settings, edits=edits), part


def edits_by_layer(settings: Settings, layers: Sequence[int], count: int) -> dict[int, WhatIf]:
    """The edits of each layer. Raises AttnError for a layer that there is not, or that nobody would see."""
    written = [split_edit(text) for text in settings.edits]
    whole = what_if_of(settings.with_(edits=[edit.text for edit in written]))
    if whole is None:
        return {}

    last = layers[-1]
    problems: list[str] = []
    by_layer: dict[int, WhatIf] = {}
    for (number, text), edit in zip(written, whole.edits, strict=True):
        layer = int(number or layers[0])
        name = f"edit {quote(f'{number}:{text}')}"
        if not -count <= layer < count:
            problems.append(f"{name}: no layer {layer}; there are {count}, from 0 to {count - 1}")
            continue
        layer %= count
        if layer > last:
            problems.append(f"{name}: after layer {last}, the last one here; add --layer {layer}")
            continue

        before = by_layer.get(layer, WhatIf())
        by_layer[layer] = WhatIf((*before.edits, edit), whole.renormalize)

    raise_all(problems)
    return by_layer


class EditInLayer(NamedTuple):
    layer: str
    """Its number as it is written; empty where none is."""
    text: str


def split_edit(text: str) -> EditInLayer:
    """'3:head_outputs[1]=0' -> the layer and the edit."""
    match = IN_LAYER.fullmatch(text)
    return EditInLayer(match[1], match[2]) if match else EditInLayer("", text)


def tokens_of(name: str, source: ModelInput, *, context: bool = False) -> Tokens:
    """Those of its text or ids, or of the `context` that a decoder reads. Raises AttnError for neither."""
    text = source.context if context else source.text
    ids = source.context_ids if context else source.ids
    if source.tokens is not None and not context:
        return source.tokens
    if ids is not None:
        return plain_ids(ids)
    if text is None:
        if context:
            raise AttnError("--context: missing; give a text, or --context-ids 1,2,3")
        raise AttnError("SENTENCE: missing; give a text, or --ids 1,2,3")
    words = Words(folder_of(name))
    if source.chat and not context:
        return words.message(text)
    return words.tokens(text, None if context else source.pair)


@dataclass
class Runner:
    """Takes one sequence through a model, keeping the traces of the layers that are asked for."""

    model: Model
    layers: list[int]
    cross: bool
    """Whether their attention to memory is meant."""
    settings: Settings
    edits: dict[int, WhatIf] = field(default_factory=dict)
    keep: Keep = None
    moved: Progress | None = None
    d_output: Array | None = None
    header: dict[str, Any] = field(default_factory=dict)
    """What all of them say of the sequence."""

    def begin(self, tokens: Tokens, context: Tokens | None = None) -> Array:
        """What comes into layer 0; the header says what it is of. Raises AttnError for misfits."""
        self.header = {}
        if tokens.text is not None:
            self.header["sentence"] = tokens.text
        self.header["tokens"] = tokens.labels
        self.header["ids"] = tokens.ids
        if context is not None and self.cross:
            self.header["key_tokens"] = context.labels
            self.header["key_ids"] = context.ids
        if tokens.special:
            self.header["special"] = list(tokens.special)
        if tokens.notes:
            self.header["notes"] = list(tokens.notes)

        require_rows(self.model, len(tokens.ids))
        return embed_ids(self.model, tokens.ids, tokens.segments)

    def begin_image(self, path: str) -> Array:
        """What comes into layer 0 of a picture."""
        from attnctl.models.images import begin_image

        seen = begin_image(self.model, path)
        self.header = seen.header
        return seen.hidden

    def pass_on(self, tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        """Only what the pass goes on with, edited."""
        what_if = self.of_attention(tensors.index)
        if cross != self.cross or what_if is None:
            return attend_plainly(tensors, hidden, memory, cross)

        plan = prepare_attention(tensors, hidden, self.header, memory, cross=cross)
        edited = replace(plan, what_if=what_if)
        return edited.run(steps_to_keep(tensors, X, RESIDUAL))

    def of_attention(self, index: int) -> WhatIf | None:
        """The edits of a layer but for those of its network's output; None where there are none."""
        whole = self.edits.get(index)
        if whole is None:
            return None
        edits = tuple(edit for edit in whole.edits if edit.step != MLP_OUTPUT)
        return replace(whole, edits=edits) if edits else None

    @property
    def networks(self) -> dict[int, Change]:
        """What the edits make of the output of a layer's network, by its number."""
        edited = {index: each for index, each in self.edits.items() if MLP_OUTPUT in each.edited}
        for index in edited:
            self.require_network(index)
        return {
            index: partial(what_if.apply_edits, step=NETWORK_STEP, header=self.header)
            for index, what_if in edited.items()
        }

    def require_network(self, index: int) -> None:
        """Raise AttnError for a layer that has no network, in a model whose layers are one part each."""
        if not self.model.description.layers[index].has_network:
            family = self.model.description.family
            raise AttnError(f"{MLP_OUTPUT}: layer {index} of {family} has no network; others are one")

    def shows_network(self, index: int) -> bool:
        """Whether the trace of a layer has its network's output: where that is asked for, or edited."""
        is_named = self.keep is not None and MLP_OUTPUT in self.keep
        if is_named and index in self.layers:
            self.require_network(index)
        return is_named or (self.keep is None and index in self.networks)

    def of_hidden(self, source: ModelInput) -> list[Trace]:
        if len(self.layers) != 1:
            raise AttnError("--layer: `hidden` is what came into one layer; name that one")
        hidden = self.rows(source.hidden)
        memory = self.rows(source.memory, "memory", self.model.description["memory_width"])
        assert hidden is not None
        if self.cross and memory is None:
            raise AttnError("memory: missing; cross-attention reads what the encoder made")

        (index,) = self.layers
        tensors = self.model.layer(index)
        trace = self.trace(tensors, hidden, memory, self.cross)
        if self.shows_network(index):
            trace = self.with_network(tensors, hidden, trace)
        return [select_steps(trace, self.keep)]

    def with_network(self, tensors: LayerTensors, hidden: Array, attended: Trace) -> Trace:
        """The trace of a layer that nothing goes on from, with the output of its network."""
        if tensors.d.crosses and not self.cross:
            raise AttnError(
                f"{MLP_OUTPUT}: layer {tensors.index} attends to the encoder before its network; "
                f"ask for it of --layer cross.{tensors.index}"
            )
        made: list[Array] = []
        network = self.recording(tensors.index, made)
        with np.errstate(all="ignore"):  # what overflows becomes ∞, as in any kernel
            finish(tensors, hidden, attended[X], attended[RESIDUAL], network)
        return self.beside_network(attended, made[0])

    def recording(self, index: int, made: list[Array]) -> Change:
        """The change of a layer's network by its edits, whose result is put into `made`."""
        change = self.networks.get(index)

        def network(output: Array) -> Array:
            made.append(output if change is None else change(output))
            return made[-1]

        return network

    def beside_network(self, attended: Trace, made: Array) -> Trace:
        """The trace of a layer's attention and what its network made after it."""
        step = NETWORK_STEP
        header = attended.header
        what_if = self.edits.get(header["layer"])
        if what_if is not None and MLP_OUTPUT in what_if.edited:
            step = what_if.mark_edited(step)
            header = {**header, "edits": what_if.record()}
        return Trace(
            {**attended.steps, MLP_OUTPUT: step},
            {**{name: attended[name] for name in attended}, MLP_OUTPUT: made},
            header,
        )

    def rows(self, array: Array | None, name: str = "hidden", width: int | None = None) -> Array | None:
        """Rows that a file holds, (token, width), in the model's type of number; as wide as the model's."""
        if array is None:
            return None
        is_batch_of_one = array.ndim == 3 and array.shape[0] == 1
        rows = array[0] if is_batch_of_one else array
        width = width or self.model.description["width"]
        if rows.ndim != 2 or rows.shape[-1] != width or not len(rows):
            raise AttnError(f"{name}: {array.shape}, expected (token, {width}), as config.json says")
        return rows.astype(self.model.dtype, copy=False)

    def traces(self, hidden: Array, memory: Array | None) -> Iterator[Trace]:
        """The traces that are asked for, each as soon as its layer is done."""
        last = max(self.layers)
        kept: list[Trace] = []

        def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
            if cross != self.cross or tensors.index not in self.layers:
                return self.pass_on(tensors, hidden, memory, cross)
            kept.append(self.trace(tensors, hidden, memory, cross))
            return kept[-1]

        for index in range(last + 1):
            if self.moved:
                self.moved(index, last + 1)
            tensors = self.model.layer(index)
            made: list[Array] = []
            network_is_read = index < last or self.shows_network(index)
            if network_is_read:
                hidden = through(tensors, hidden, memory, run, self.recording(index, made))
            else:
                # Nothing reads what leaves the last layer: its network is left out.
                attended = run(tensors, hidden, memory, False)
                if self.cross:
                    run(tensors, tensors.norm("self_sum_norm", attended[RESIDUAL]), memory, True)

            while kept:
                trace = kept.pop()
                if self.shows_network(index):
                    trace = self.beside_network(trace, made[0])
                yield select_steps(trace, self.keep)

    def plan(self, tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Plan:
        header = {
            **self.header,
            "model": self.model.name,
            "family": tensors.d.family,
            "layer": tensors.index,
        }
        if part := self.model.description.part:
            header["part"] = CROSS if cross else part
        if tensors.this_layer.is_linear:
            header["mixer"] = mixer_of(tensors.d, tensors.index)
        header["config"] = config_of(tensors, self.settings, cross)

        plan = prepare_attention(tensors, hidden, header, memory if cross else None, cross=cross)
        if tensors.this_layer.is_linear and self.settings.backward:
            raise AttnError(
                f"--backward: layer {tensors.index} has no softmax; gradients are those of attention"
            )
        if tensors.d["distances"] and self.settings.backward:
            raise AttnError(
                f"--backward: the scores of {tensors.d.family} read vectors of distances, whose gradients "
                "are not computed; run it without"
            )
        return with_gradients(plan, self.settings, self.rows(self.d_output, gradient_of(OUTPUT)))

    def trace(self, tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        """The attention of one layer, with what the layers after it go on from."""
        plan = self.plan(tensors, hidden, memory, cross)
        plan = replace(plan, what_if=self.of_attention(tensors.index))
        if self.keep is None:
            return plan.run(None)

        keep = {*self.keep} - {MLP_OUTPUT}
        if tensors.index < self.layers[-1] or self.shows_network(tensors.index):
            keep |= {*steps_to_keep(tensors, X, RESIDUAL)}
        if {WEIGHTS, FADED} <= keep:  # those that this layer has
            keep -= {WEIGHTS, FADED} - {*shares_in(plan.derivation)}
        if WEIGHTS in keep and SINK_WEIGHTS in plan.derivation:
            keep.add(SINK_WEIGHTS)  # tables show it as a column more
        return plan.run(keep)


NETWORK_STEP = Step(
    name=MLP_OUTPUT,
    op=Given(),
    inputs=(),
    axes=TABLE[MLP_OUTPUT].axes,
    formula="what the network adds to the residual",
    symbol=TABLE[MLP_OUTPUT].symbol,
)


def select_steps(trace: Trace, keep: Keep) -> Trace:
    return trace if keep is None else trace.select([name for name in trace if name in keep])


def config_of(tensors: LayerTensors, asked: Settings, cross: bool) -> dict[str, Any]:
    """The layer's attention as settings say it, as far as they can."""
    d = tensors.d
    layer = tensors.this_layer
    known = {"d_model": d["width"], **{name: d[name] for name in ("heads", "kv_heads", "d_k", "d_v")}}
    if layer.is_network:
        known = {"d_model": d["width"]}
    elif layer.is_linear:
        heads, d_k, d_v = head_sizes(d)
        known |= {"heads": heads, "kv_heads": heads, "d_k": d_k, "d_v": d_v}

    known["scale"] = layer.scale
    known["rules"] = () if cross or layer.is_linear else rules_of(d, layer)
    known["dtype"] = tensors.model.dtype
    if not cross:
        known["temperature"] = layer.temperature
    known |= {name: getattr(asked, name) for name in GRADIENT_SETTINGS}

    written = Settings(**known).to_dict()
    return {name: written[name] for name in known if name in written}
