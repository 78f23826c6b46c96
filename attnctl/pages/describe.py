"""Describe a trace for a page: its steps with their arithmetic, cost and addresses, as JSON data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing.show import formula_of
from attnctl.drawing.show.headline import facts
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.engine.cost import size_text
from attnctl.math.filling import form_of
from attnctl.math.names import WEIGHTS
from attnctl.math.notation import data
from attnctl.math.ops import Given, Hide, Softmax
from attnctl.pages.kept import Kept
from attnctl.record import Trace
from attnctl.record.cells import Speller
from attnctl.store.codec import as_json_data
from attnctl.store.header import header_data
from attnctl.verbs.explain import Explainer, line
from attnctl.verbs.explain.view import DIFFERS, MAXIMUM, ROUNDED
from attnctl.verbs.models.heads import head_profiles

WORDS = {
    "another": line.ANOTHER,
    "computed": line.COMPUTED,
    "differs": DIFFERS,
    "edited": line.BY_HAND,
    "hidden": line.HIDDEN,
    "maximum": MAXIMUM,
    "rounded": ROUNDED,
    "row_edited": line.ROW_EDITED,
}
"""The sentences of `explain`, for the page to fill in."""

UNSAID = {"model", "models", "snapshots", "main", "checkpoint"}
"""Folders that do not say which model is in them."""

NO_FORM = "the arithmetic of this step is not in the page; attnctl explain FILE CELL writes it"

OF_A_MAP = (
    "a page of all layers holds their weights alone; --layer {} -o FILE.html shows where these come from"
)


@dataclass
class Describer:
    """Describes the traces of one page; its arrays stand there by number, and what is the same once."""

    arrays: list[Array] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)

    def add(self, array: Array) -> int:
        from hashlib import sha256

        array = np.ascontiguousarray(array).reshape(array.shape)
        key = sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).digest()
        if key not in self.known:
            self.known[key] = len(self.arrays)
            self.arrays.append(array)
        return self.known[key]

    def trace(self, kept: Kept) -> dict[str, Any]:
        """A trace: the dump that is read back, and what is shown of it."""
        trace = kept.trace
        held = {name: self.add(trace[name]) for name in trace}
        dump = header_data(trace)
        if "model" in dump:  # its name, and not where on this machine it lies
            dump |= {"model": model_name(str(dump["model"]))}
        return {"dump": dump if held else None, "blocks": held, "view": self.view(kept)}

    def view(self, kept: Kept) -> dict[str, Any]:
        spellings: dict[str, Any] = {}
        steps = []
        if len(kept.trace):
            explainer = explainer_of(kept.trace)
            steps = [self.step(explainer, step, spellings) for step in explainer.trace.steps.values()]
        steps += self.pictures(kept, spellings)
        return self.heading(kept.trace, kept) | {"steps": steps, "spellings": spellings}

    def heading(self, trace: Trace, kept: Kept) -> dict[str, Any]:
        layer = layer_of(trace)
        name = (trace.sentence or "") if layer is None else f"layer {layer}"
        notes = [each for each in trace.header.get("notes", ()) if each not in kept.said]
        return as_json_data(
            {
                "name": name or "attention",
                "called": name_layer(trace),
                "layer": layer,
                "sentence": trace.sentence or "",
                "context": trace.header.get("context"),
                "tokens": trace.tokens,
                "keyTokens": trace.key_tokens,
                "special": trace.header.get("special", []),
                "facts": facts(trace),
                "notes": [*kept.said, *map(str, notes)],
                "heads": what_heads_do(trace),
                "norms": None if kept.norms is None else self.add(kept.norms),
            }
        )

    def step(self, explainer: Explainer, step: Step, spellings: dict[str, Any]) -> dict[str, Any]:
        """A step: what it is called, what it costs, how its cells come about."""
        described = self.numbers(step.name, explainer.trace[step.name]) | {
            "symbol": step.symbol,
            "title": formula_of(step),
            "formula": step.formula,
            "axes": list(step.axes),
            "inputs": list(step.inputs),
            "given": isinstance(step.op, Given),
            "softmax": isinstance(step.op, Softmax),
            "computed": step.name not in explainer.own,
            "cost": cost_of(explainer.trace, step),
            "words": words_of(explainer, step.name, spellings),
            "edits": [
                {
                    "places": [i if isinstance(i, int) else None for i in index],
                    "note": line.EDITED.format(text),
                }
                for text, name, index in explainer.edits
                if name == step.name
            ],
        }
        return described | self.arithmetic(explainer, step)

    def arithmetic(self, explainer: Explainer, step: Step) -> dict[str, Any]:
        """The form of a step and what hides its cells, or why there is none."""
        if isinstance(step.op, Given):
            return {}
        try:
            inputs = explainer.inputs_of(step)
        except AttnError as error:
            layer = layer_of(explainer.trace)
            if layer is not None and set(explainer.trace) == {WEIGHTS}:
                return {"why": OF_A_MAP.format(layer)}
            return {"why": str(error)}
        array = explainer.trace[step.name]
        source = explainer.trace.steps[step.inputs[0]] if isinstance(step.op, Softmax) else step
        hidden = find_hiding(explainer.trace, source)
        hides = None  # which rule hides each score, from 1; 0 is a score that is seen
        if hidden is not None:
            assert isinstance(source.op, Hide)
            hides = {"block": self.add(hidden), "names": line.reasons(source.op)}
        if not fits(explainer, step, inputs):
            return {"hides": hides, "why": NO_FORM}
        tables: list[int] = []

        def number_of(table: Array) -> int:
            tables.append(self.add(table))
            return tables[-1]

        form = as_json_data(data(form_of(step.op, array.ndim, inputs), number_of))
        return {"form": form, "tables": tables, "hides": hides}

    def pictures(self, kept: Kept, spellings: dict[str, Any]) -> list[dict[str, Any]]:
        """The steps that are shown by blocks."""

        def blocks_of(array: Array, axis: int, side: int) -> str:
            key = f"blocks of {side}, {array.shape[axis]}"
            spellings[key] = [f"{at * side}–{(at + 1) * side - 1}" for at in range(array.shape[axis])]
            return key

        return [
            self.numbers(name, array)
            | {
                "symbol": "A",
                "title": f"by blocks of {side} × {side}",
                "axes": ["head", "query", "key"],
                "words": [None] * (array.ndim - 2) + [blocks_of(array, axis, side) for axis in (-2, -1)],
                "why": kept.said[0],
            }
            for name, (array, side) in kept.pictures.items()
        ]

    def numbers(self, name: str, array: Array) -> dict[str, Any]:
        """The numbers of a step, of which nothing else is said yet."""
        return {
            "name": name,
            "symbol": "",
            "title": "",
            "formula": "",
            "axes": [],
            "shape": list(array.shape),
            "dtype": array.dtype.name,
            "block": self.add(array),
            "inputs": [],
            "given": False,
            "softmax": False,
            "computed": False,
            "cost": "",
            "words": [],
            "edits": [],
            "form": None,
            "tables": [],
            "hides": None,
            "why": "",
        }


def name_layer(trace: Trace) -> str:
    """`MiniLM layer 3`; nothing where no model was run."""
    model, layer = trace.header.get("model"), layer_of(trace)
    said = [model_name(str(model)) if model else "", "" if layer is None else f"layer {layer}"]
    return " ".join(filter(None, said))


def layer_of(trace: Trace) -> int | None:
    layer = trace.header.get("layer")
    return layer if isinstance(layer, int) else None


def model_name(path: str) -> str:
    """Name a model by the last folder of its path that says something."""
    parts = [word for word in re.split(r"[\\/]", path) if word]
    names = [part.rpartition("--")[2] for part in parts if part.startswith("models--")]
    said = [part for part in parts if part.lower() not in UNSAID]
    return (names or said or parts or [path])[-1]


def what_heads_do(trace: Trace) -> list[dict[str, Any]] | None:
    """For each head its name and shares, as the map of a model has them."""
    weights = trace.get(WEIGHTS)
    if weights is None or weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        return None
    many = weights.shape[-1]
    if trace.tokens != trace.key_tokens or len(trace.ids or range(many)) != many:
        return None
    if layer_of(trace) != trace.header.get("layer") or not np.isfinite(weights).all():
        return None
    return [
        {"name": each.name, "shares": {kind: round(share, 4) for kind, share in each.shares.items()}}
        for each in head_profiles(trace)
    ]


def explainer_of(trace: Trace) -> Explainer:
    """Return an explainer of the trace; of a file that is not attention it has the numbers alone."""
    try:
        return Explainer(trace)
    except AttnError:
        explainer = Explainer(Trace({}, {}, trace.header | {"edits": []}))
        explainer.trace, explainer.own = trace, set(trace)
        explainer.spell = Speller(trace)
        return explainer


def fits(explainer: Explainer, step: Step, inputs: Sequence[Array]) -> bool:
    """True where the arithmetic of a step goes with its numbers, as in others' dumps it may not."""
    shape = explainer.trace[step.name].shape
    if 0 in shape:
        return False
    try:
        with np.errstate(all="ignore"):
            for cell in (tuple(0 for _ in shape), tuple(size - 1 for size in shape)):
                explainer.arithmetic(step, cell, inputs)
    except line.MISFIT:
        return False
    return True


def find_hiding(trace: Trace, step: Step) -> Array | None:
    """For each score the number of the rule that hides it, from 1, where this is the step that hides."""
    if not isinstance(step.op, Hide) or any(name not in trace for name in step.inputs[1:]):
        return None
    shape = trace[step.name].shape
    masks = [trace[name] for name in step.inputs[1:]]
    heads = (*shape[:-3], 1, *shape[-2:])  # rules hide the same of every head; a mask may not
    if all(np.broadcast_shapes(mask.shape, heads) == heads for mask in masks):
        shape = heads
    try:
        return (step.op.hidden_by(shape, *masks) + 1).astype(np.uint8)
    except (ValueError, IndexError):
        return None


def words_of(explainer: Explainer, name: str, spellings: dict[str, Any]) -> list[str | None]:
    """For each axis under which name its places are spelled, None where they are numbers."""
    trace, out = explainer.trace, []
    for axis, kind in enumerate(trace.steps[name].axes):
        words = explainer.spell.words(name, axis)
        key = f"{kind} {trace[name].shape[axis]}"
        if words is not None:
            spellings[key] = words
        out.append(None if words is None else key)
    return out


def cost_of(trace: Trace, step: Step) -> str:
    """`288 B, 54 operations`."""
    array = trace[step.name]
    size = size_text(array.nbytes)
    if isinstance(step.op, Given) or any(name not in trace for name in step.inputs):
        return size
    try:
        operations = step.op.cost(array.shape, *(trace[name].shape for name in step.inputs))
    except (LookupError, TypeError, ValueError):
        return size
    return f"{size}, {operations:,} operations" if operations else size
