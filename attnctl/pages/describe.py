"""What a page keeps of a trace and says of it, as JSON: steps with their arithmetic and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from hashlib import sha256
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.linalg import norm

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.drawing.show import formula_of
from attnctl.drawing.show.headline import facts
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.filling import form_of
from attnctl.math.names import HEAD_OUTPUTS, OUTPUT, WEIGHTS, is_gradient
from attnctl.math.notation import data
from attnctl.math.ops import Given, Hide, Softmax
from attnctl.math.ops.chunks import ByChunk
from attnctl.record import Trace
from attnctl.record.cells import Speller
from attnctl.record.linear import ApartError, course
from attnctl.store.header import as_json_data, header_data
from attnctl.verbs import explain
from attnctl.verbs.explain import Explainer
from attnctl.verbs.explain.view import DIFFERS, MAXIMUM, ROUNDED

WORDS = {
    "computed": explain.COMPUTED,
    "differs": DIFFERS,
    "edited": explain.BY_HAND,
    "hidden": explain.HIDDEN,
    "kinds": {
        "sink": "special tokens at the end",
        "previous": "the token before",
        "first": "the first token",
        "self": "the token itself",
        "same word": "the same word elsewhere",
        "induction": "what followed the same word before",
    },
    "maximum": MAXIMUM,
    "rounded": ROUNDED,
    "row_edited": explain.ROW_EDITED,
}
"""The sentences of `explain`, for the page to fill in, and what a head may attend to."""

UNSAID = {"model", "models", "snapshots", "main", "checkpoint"}
"""Folders that do not say which model is in them."""

MOST_TOKENS = 512  # the longest sentence of which a page computes scores that it does not hold

NO_FORM = "the arithmetic of this step is not in the page; attnctl explain FILE CELL writes it"

OF_A_MAP = (
    "this page holds the weights of every layer and no other step; to see where these come from, run the "
    "model with --layer {} -o FILE.html"
)


NO_REASONS = (
    "A weight says how much of a value a query reads, not what the answer hangs on: a large weight on a "
    "value near 0 changes nothing. Leave a head out and see: {}"
)


Blocks = dict[bytes, tuple[int, Array]]
"""The arrays of a page by a hash, each with its number there: what is the same stands there once."""


def add_block(blocks: Blocks, array: Array) -> int:
    array = np.ascontiguousarray(array).reshape(array.shape)
    key = sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).digest()
    number, _ = blocks.setdefault(key, (len(blocks), array))
    return number


def trace_data(kept: Kept, blocks: Blocks) -> dict[str, Any]:
    """A trace: the dump that is read back, and what is shown of it."""
    trace = kept.trace
    spellings: dict[str, Any] = {}
    held = {name: add_block(blocks, trace[name]) for name in trace}
    dump = header_data(trace)
    if "model" in dump:  # its name, and not where on this machine it lies
        dump |= {"model": model_name(str(dump["model"]))}

    steps = []
    if held:
        explainer = explainer_of(trace)
        steps = [step_data(explainer, step, spellings, blocks) for step in explainer.trace.steps.values()]
    steps += picture_data(kept, spellings, blocks)

    view = heading_data(kept, blocks) | {"steps": steps, "spellings": spellings}
    return {"dump": dump if held else None, "blocks": held, "view": view}


def heading_data(kept: Kept, blocks: Blocks) -> dict[str, Any]:
    trace = kept.trace
    layer = layer_of(trace)
    name = (trace.sentence or "") if layer is None else f"layer {layer}"
    notes = [str(note) for note in trace.header.get("notes", ()) if note not in kept.said]
    return as_json_data(
        {
            "name": name or "attention",
            "called": name_layer(trace),
            "layer": layer,
            "sentence": trace.sentence or "",
            "tokens": trace.tokens,
            "keyTokens": trace.key_tokens,
            "special": trace.header.get("special", []),
            "facts": facts(trace),
            "notes": [*kept.said, *notes, *no_reasons(trace)],
            "heads": what_heads_do(trace),
            "chunks": chunk_starts(trace),
            "norms": None if kept.norms is None else add_block(blocks, kept.norms),
        }
    )


def no_reasons(trace: Trace) -> Iterator[str]:
    """What the weights of a model do not say, and what measures that."""
    if "model" not in trace.header or WEIGHTS not in trace:
        return
    name = model_name(str(trace.header["model"]))
    if trace.config.get("rules") == ["causal"]:
        command = f"attnctl effect PROMPT --model {name} --between A B"
    else:
        layer = layer_of(trace) or 0
        command = f"attnctl run TEXT --model {name} --layer {layer} --edit 'head_outputs[0]=0'"
    yield NO_REASONS.format(command)


def step_data(
    explainer: Explainer, step: Step, spellings: dict[str, Any], blocks: Blocks
) -> dict[str, Any]:
    """A step: what it is called, how its cells come about; a page computes those that are not its own."""
    array = explainer.trace[step.name]
    is_recorded = step.name in explainer.recorded
    described = numbers_data(step.name, array, add_block(blocks, array) if is_recorded else None)
    described |= {
        "symbol": step.symbol,
        "title": formula_of(step),
        "formula": step.formula,
        "axes": list(step.axes),
        "inputs": list(step.reads),
        "given": isinstance(step.op, Given),
        "gradient": is_gradient(step.name),
        "softmax": isinstance(step.op, Softmax),
        "computed": not is_recorded,
        "words": words_of(explainer, step.name, spellings),
        "edits": [edit_data(edit) for edit in explainer.edits if edit.step == step.name],
    }
    return described | arithmetic_data(explainer, step, blocks)


def edit_data(edit: explain.RecordedEdit) -> dict[str, Any]:
    """Which cells were edited, None where all places of an axis were, and what is said of them."""
    places = [place if isinstance(place, int) else None for place in edit.places]
    return {"places": places, "note": explain.EDITED.format(edit.text)}


def arithmetic_data(explainer: Explainer, step: Step, blocks: Blocks) -> dict[str, Any]:
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

    source = explainer.trace.steps[step.inputs[0]] if isinstance(step.op, Softmax) else step
    hidden = find_hiding(explainer.trace, source)
    hides = None  # which rule hides each score, from 1; 0 is a score that is seen
    if hidden is not None:
        assert isinstance(source.op, Hide)
        hides = {"block": add_block(blocks, hidden), "names": explain.reasons(source.op)}
    if not fits(explainer, step, inputs):
        return {"hides": hides, "why": NO_FORM}

    tables: list[int] = []

    def number_of(table: Array) -> int:
        tables.append(add_block(blocks, table))
        return tables[-1]

    axes = explainer.trace[step.name].ndim
    form = as_json_data(data(form_of(step.op, axes, inputs), number_of))
    return {"form": form, "tables": tables, "hides": hides}


def picture_data(kept: Kept, spellings: dict[str, Any], blocks: Blocks) -> Iterator[dict[str, Any]]:
    """The steps that are shown by blocks."""
    for name, (array, side) in kept.pictures.items():
        words: list[str | None] = [None] * (array.ndim - 2)
        for size in array.shape[-2:]:
            key = f"blocks of {side}, {size}"
            words.append(key)
            starts = range(0, size * side, side)
            spellings[key] = [f"{start}–{start + side - 1}" for start in starts]
        yield numbers_data(name, array, add_block(blocks, array)) | {
            "symbol": "A",
            "title": f"by blocks of {side} × {side}",
            "axes": ["head", "query", "key"],
            "words": words,
            "why": kept.said[0],
        }


def numbers_data(name: str, array: Array, block: int | None) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "dtype": array.dtype.name, "block": block}


def name_layer(trace: Trace) -> str:
    """`MiniLM layer 3`; nothing where no model was run."""
    words = []
    if model := trace.header.get("model"):
        words.append(model_name(str(model)))
    layer = layer_of(trace)
    if layer is not None:
        words.append(f"layer {layer}")
    return " ".join(filter(None, words))


def layer_of(trace: Trace) -> int | None:
    layer = trace.header.get("layer")
    return layer if isinstance(layer, int) else None


def model_name(path: str) -> str:
    """Name a model by the last folder of its path that says something."""
    folders = [word for word in re.split(r"[\\/]", path) if word]
    # In the cache of the Hugging Face hub the folder is models--OWNER--NAME.
    names = [folder.rpartition("--")[2] for folder in folders if folder.startswith("models--")]
    telling = [folder for folder in folders if folder.lower() not in UNSAID]
    return (names or telling or folders or [path])[-1]


def what_heads_do(trace: Trace) -> list[dict[str, Any]] | None:
    """For each head its name and shares, as the map of a model has them."""
    weights = trace.get(WEIGHTS)
    if weights is None or weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        return None
    tokens = weights.shape[-1]
    if trace.tokens != trace.key_tokens or (trace.ids and len(trace.ids) != tokens):
        return None
    if layer_of(trace) != trace.header.get("layer") or not np.isfinite(weights).all():
        return None
    from attnctl.verbs.models.heads import head_profiles

    heads = []
    effects = trace.header.get("effect") or [None] * len(weights)
    for head, effect in zip(head_profiles(trace), effects, strict=True):
        shares = {kind: round(share, 4) for kind, share in head.shares.items()}
        described: dict[str, Any] = {"name": head.name, "shares": shares}
        if effect is not None:
            described["effect"] = effect
        heads.append(described)
    return heads


def chunk_starts(trace: Trace) -> list[int]:
    """The keys at which chunks begin, after the first; none where keys are not cut."""
    ops = [step.op for step in trace.steps.values() if isinstance(step.op, ByChunk)]
    with suppress(ValueError):
        if ops and WEIGHTS in trace:
            return [part.start for part in ops[0].parts(trace[WEIGHTS].shape[-1])][1:]
    return []


def explainer_of(trace: Trace) -> Explainer:
    """Return an explainer of the trace; of a file that is not attention it has the numbers alone."""
    try:
        explainer = Explainer(trace)
    except AttnError:
        explainer = Explainer(Trace({}, {}, trace.header | {"edits": []}))
        explainer.trace = trace
        explainer.recorded = set(trace)
        explainer.spell = Speller(trace)

    row_counts = [size for name in trace for size in trace[name].shape[-2:-1]]
    if max(row_counts, default=0) > MOST_TOKENS:
        explainer.trace = trace  # without the steps that a page would have to compute
    return explainer


def fits(explainer: Explainer, step: Step, inputs: Sequence[Array]) -> bool:
    """True where the arithmetic of a step goes with its numbers, as in others' dumps it may not."""
    shape = explainer.trace[step.name].shape
    if 0 in shape:
        return False

    first_cell = tuple(0 for _ in shape)
    last_cell = tuple(size - 1 for size in shape)
    try:
        with np.errstate(all="ignore"):
            for cell in (first_cell, last_cell):
                explainer.arithmetic(step, cell, inputs)
    except explain.MISFIT:
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
    trace = explainer.trace
    keys: list[str | None] = []
    for axis, kind in enumerate(trace.steps[name].axes):
        words = explainer.spell.words(name, axis)
        if words is None:
            keys.append(None)
            continue
        key = f"{kind} {trace[name].shape[axis]}"
        spellings[key] = words
        keys.append(key)
    return keys


# --- what a page keeps of a trace, so that it can be mailed and opens at once ---


LAYERS_ROOM = 3 << 16  # bytes of numbers besides weights in a page of all layers
SCORES_ROOM = 2  # times as much room for what weights come of
FIRST_KEPT = {"scores", "scaled_scores"}
"""What a weight comes of; where there is room, what these come of, too."""

ROOM = 9 << 19  # bytes of numbers in one page: 4.5 MiB become less than 6 MB of text
MATRIX_ROOM = 1 << 18  # bytes of weight matrices in one page
NARROW = np.dtype("float16")
GRAIN = 1 << 14  # steps from 0 to 1 that weights are rounded to there: digits that are not there deflate


@dataclass
class Kept:
    """The steps of a trace that a page holds, pictures of those that are too large, and words of it."""

    trace: Trace
    pictures: dict[str, tuple[Array, int]] = field(default_factory=dict)
    """Weights by blocks, and how many tokens a side of a block has."""
    said: list[str] = field(default_factory=list)
    norms: Array | None = None
    """What a weight on each key is worth, (head, key): ‖V W_O‖ (Kobayashi et al. 2020, section 3)."""


def choose_kept(traces: Sequence[Trace]) -> list[Kept]:
    """Choose what one page keeps of these traces: all of them have the same room."""
    room = ROOM // max(1, len(traces))
    are_layers = len(traces) > 1 and all(trace.header.get("model") for trace in traces)
    room_beside = LAYERS_ROOM // len(traces) if are_layers else room
    return [keep_within(trace, room, room_beside) for trace in traces]


def keep_within(trace: Trace, room: int, room_beside: int | None = None) -> Kept:
    """Everything where there is room for it, else the weights first, then the smaller steps.

    Matrices of a checkpoint, which are its own to keep, have less room; `room_beside` is what there is
    for all but the weights.
    """
    norms = value_norms(trace)
    matrices = matrices_to_leave_out(trace)
    sizes = {name: trace[name].nbytes for name in trace if name not in matrices}
    besides = sum(size for name, size in sizes.items() if name != WEIGHTS)
    is_tight = room_beside is not None and besides > room_beside
    if not matrices and sum(sizes.values()) <= room and not is_tight:
        return Kept(trace, norms=norms)

    kept = Kept(trace)
    held: set[str] = set()
    if WEIGHTS in trace:
        kept = with_weights(trace, room)
        room -= sum(array.nbytes for array, _ in kept.pictures.values())
        if WEIGHTS in kept.trace:
            room -= kept.trace[WEIGHTS].nbytes
        held.add(WEIGHTS)

    room_for_all = room
    if room_beside is not None and is_tight:
        room = min(room, SCORES_ROOM * room_beside)
        room_for_all = min(room, room_beside)
    others = [name for name in sizes if name not in held]
    if is_tight:
        others = weights_first(trace, others, sizes, room_for_all)
    else:
        others.sort(key=sizes.__getitem__)
    for name in others:
        if sizes[name] > room:
            break
        held.add(name)
        room -= sizes[name]

    steps = {name: step for name, step in kept.trace.steps.items() if name in held}
    kept.trace = replace(kept.trace, steps=steps)
    kept.norms = norms
    left_out = [name for name in trace if name not in held]
    if left_out and is_tight:
        layer = layer_of(trace)
        kept.said.append(
            f"Left out, so that a page of all layers stays small: {all_of(left_out)}. A page of one layer "
            f"has them: --layer {0 if layer is None else layer} -o FILE.html; .npz keeps every number."
        )
    elif left_out:
        kept.said.append(
            f"Left out, so that the page stays small: {all_of(left_out)}. To see one of them, write a page "
            f"of it alone: --step {left_out[-1]} -o FILE.html; .npz keeps every number."
        )
    return kept


def weights_first(trace: Trace, names: Sequence[str], sizes: Mapping[str, int], room: int) -> list[str]:
    """What weights come of; then Q and K, both or neither: one alone explains no score; then the rest."""
    first = sorted((name for name in names if name in FIRST_KEPT), reverse=True)  # scaled_scores, scores
    pair = [*trace.steps["scores"].inputs] if "scores" in trace else []
    rest = sorted((name for name in names if name not in {*first, *pair}), key=sizes.__getitem__)

    if not {*pair} <= {*names}:
        return first
    kept = [*first, *pair]
    left = room - sum(sizes[name] for name in kept)
    if left < 0:
        return first

    for name in rest:
        left -= sizes[name]
        if left < 0:
            break
        kept.append(name)
    return kept


def matrices_to_leave_out(trace: Trace) -> list[str]:
    """The weight matrices of a checkpoint: they are many times what they make of a sentence."""
    if WEIGHTS not in trace:
        return []
    matrices = [
        name for name, step in trace.steps.items() if step.symbol == "W" and isinstance(step.op, Given)
    ]
    size = sum(trace[name].nbytes for name in matrices)
    return matrices if size > MATRIX_ROOM else []


def value_norms(trace: Trace) -> Array | None:
    """How much a weight of 1 on each head and key adds to the output, ‖V W_O‖ where W_O alone follows.

    None where weights are not mixed as they are, or where that is another for each query.
    """
    if HEAD_OUTPUTS not in trace or OUTPUT not in trace:
        return None
    weights, name, *_ = (*trace.steps[HEAD_OUTPUTS].inputs, "", "")
    if weights != WEIGHTS or name not in trace or trace[name].ndim != 3:
        return None
    lines = course(trace, HEAD_OUTPUTS, OUTPUT)
    if lines is None:
        return None

    values = trace[name].astype(np.float64)
    with np.errstate(all="ignore"), suppress(ApartError):
        pushed = lines.push(HEAD_OUTPUTS, values)
        pushed_reversed = lines.push(HEAD_OUTPUTS, values[:, ::-1])
        one_head = np.eye(len(values))[:, :, None, None]
        norms = np.array([norm(lines.push(HEAD_OUTPUTS, values * head), axis=-1) for head in one_head])

        same_for_each_query = np.allclose(pushed_reversed[::-1], pushed)
        has_shape = norms.shape == trace[WEIGHTS].shape[::2]
        if same_for_each_query and np.isfinite(norms).all() and has_shape:
            return norms
    return None


def with_weights(trace: Trace, room: int) -> Kept:
    """The trace with its weights in as many digits as there is room for, or by blocks."""
    weights = trace[WEIGHTS]
    if weights.nbytes <= room:
        return Kept(trace)
    if weights.size * NARROW.itemsize <= room:
        return with_narrow_weights(trace)
    return with_blocks_of_weights(trace, room)


def with_narrow_weights(trace: Trace) -> Kept:
    """The trace with its weights in four decimals."""
    narrow = (np.rint(trace[WEIGHTS] * GRAIN) / GRAIN).astype(NARROW)
    arrays = {name: trace[name] for name in trace} | {WEIGHTS: narrow}
    note = f"{WEIGHTS} are kept to four decimals here, as float16; -o FILE.npz keeps every digit."
    notes = [*trace.header.get("notes", ()), note]
    return Kept(replace(trace, arrays=arrays, header=trace.header | {"notes": notes}), {}, [note])


def with_blocks_of_weights(trace: Trace, room: int) -> Kept:
    """The trace without its weights, and a picture of them by blocks."""
    weights = trace[WEIGHTS]
    queries, keys = weights.shape[-2:]
    matrices = max(1, int(np.prod(weights.shape[:-2])))
    blocks_along_a_side = min(256, int(sqrt(room / NARROW.itemsize / matrices)))
    side = ceil(max(queries, keys) / max(1, blocks_along_a_side))

    steps = {name: step for name, step in trace.steps.items() if name != WEIGHTS}
    note = (
        f"{WEIGHTS} ({queries:,} × {keys:,} a head) are shown by blocks of {side} × {side}: each square is "
        f"what {side} queries give to {side} keys together, on average. To see every number: a shorter "
        f"sentence, attnctl show DUMP --step {WEIGHTS} --head 0, or -o FILE.npz."
    )
    return Kept(replace(trace, steps=steps), {WEIGHTS: (by_blocks(weights, side), side)}, [note])


def by_blocks(weights: Array, side: int) -> Array:
    """(…, query, key) -> by blocks: the sum over a block's keys, the mean over its queries."""
    queries, keys = weights.shape[-2:]
    first_queries = range(0, queries, side)
    first_keys = range(0, keys, side)
    queries_of_block = np.diff([*first_queries, queries])[:, None]  # fewer in the last

    kind = np.result_type(weights, np.float32)
    by_key = np.add.reduceat(weights, first_keys, axis=-1, dtype=kind)
    by_block = np.add.reduceat(by_key, first_queries, axis=-2)
    return (by_block / queries_of_block).astype(NARROW)
