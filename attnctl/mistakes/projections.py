"""Mistakes in what X is multiplied with, and in what is added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import HEAD_OUTPUTS, WEIGHTS
from attnctl.math.ops import (
    Add,
    Copy,
    Given,
    MatMul,
    MatMulT,
    Merge,
    Op,
    Project,
    Scale,
    ScaleHeads,
    Slope,
    Softmax,
)
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import all_or_one, at, planted_fit, spoken, spoken_after, square

PROJECTED = ("Q", "K", "V")
CROSSED = {"Q": "K", "K": "Q"}
DEQUANTISED = ("K_dequantised", "V_dequantised")

MADE = at(*PROJECTED, Project)
OUT = at("output", MatMul)


def projections(case: WrongStep) -> tuple[str, ...]:
    return tuple(MADE.right(case))


def turn_square(case: WrongStep, name: str) -> wrong.Move | None:
    """How a step's matrix can be transposed: as it is fused, or head by head."""
    weight = case.derivation[name].inputs[1]
    if weight not in case.record:
        return None

    *heads, rows, columns = case.record.trace[weight].shape
    if heads and heads[0] * columns == rows:
        return transpose_fused
    return wrong.transpose if rows == columns else None


def transpose_fused(w: Array) -> Array:
    """(head, d_model, d), transposed as one square matrix of all heads."""
    fused = wrong.side_by_side(w)
    return wrong.side_into_heads(wrong.transpose(fused), len(w))


def plant_transposes(case: WrongStep) -> Iterator[Plant]:
    right = MADE.right(case) | OUT.right(case)
    turned: dict[str, Op] = {}
    for name, op in right.items():
        turn = turn_square(case, name)
        if turn:
            turned[name] = wrong.Arranged(op, (wrong.keep_positions, turn))

    for names in all_or_one(*turned):
        ops = {name: turned[name] for name in names}
        yield Plant(case.put_all(ops), list_names(f"W_{letter(name)}" for name in names))


def letter(name: str) -> str:
    return "O" if name == "output" else name


def list_names(names: Iterable[str]) -> str:
    """W_Q is; W_Q, W_K and W_V are."""
    *most, last = names
    return f"{', '.join(most)} and {last} are" if most else f"{last} is"


def plant_swaps(case: WrongStep) -> Iterator[Plant]:
    """K Qᵀ for Q Kᵀ; or each projected with the other's matrix."""
    read = case.derivation["scores"].inputs if isinstance(case.op("scores"), MatMulT) else ()
    are_there = all(name in case.derivation for name in read)
    if read and are_there and square(case):
        yield Plant(exchange_queries(case))

    are_projected = {"Q", "K"} <= set(projections(case))
    if are_projected and have_same_shapes(case, CROSSED):
        yield from map(Plant, project_with(case, CROSSED))


def project_with(case: WrongStep, others: Mapping[str, str]) -> Iterator[WrongStep]:
    """Some projected with the matrix of others: with the bias of that as well, or the matrix alone."""
    names = {*others, *others.values()}
    inputs_of = {name: case.derivation[name].inputs for name in names}
    has_bias = any(len(inputs) > 2 for inputs in inputs_of.values())
    with_bias_and_without = (3, 2) if has_bias else (2,)

    for last in with_bias_and_without:
        crossed: dict[str, tuple[str, ...]] = {}
        for name, other in others.items():
            rows, *own = inputs_of[name]
            weights = inputs_of[other][1:last]
            rest = own[last - 1 :]
            crossed[name] = (rows, *weights, *rest)
        yield case.rewired(crossed)


def exchange_queries(case: WrongStep) -> WrongStep:
    """K Qᵀ: keys in the place of queries, of which there may be some rows, and queries in theirs."""
    scores = case.derivation["scores"]
    queries, keys = scores.inputs
    q = case.derivation[case.source(queries)].name
    k = case.derivation[case.source(keys)].name
    as_queries = case.bare("K as queries", Copy(), (k,), q)
    as_keys = case.bare("Q as keys", Copy(), (q,), k)
    if queries == q:
        exchanged = replace(scores, inputs=(as_queries.name, as_keys.name))
        return case.beside("scores", [as_queries, as_keys], exchanged)

    rows = case.derivation[queries]
    new_name = case.fresh("some rows of K as queries")
    some_rows = replace(rows, name=new_name, inputs=(as_queries.name,))
    exchanged = replace(scores, inputs=(some_rows.name, as_keys.name))
    return case.beside("scores", [as_queries, as_keys, some_rows], exchanged)


def with_bias(case: WrongStep) -> dict[str, Step]:
    """The projections that read a bias behind their rows and their matrix."""
    biased: dict[str, Step] = {}
    for name in (*projections(case), "output"):
        if name in case.derivation and len(case.derivation[name].inputs) > 2:
            biased[name] = case.derivation[name]
    return biased


def plant_without_bias(case: WrongStep) -> Iterator[Plant]:
    biased = with_bias(case)
    for names in all_or_one(*biased):
        inputs = {name: biased[name].inputs[:2] for name in names}
        said = list_names(f"b_{letter(name)}" for name in names)
        yield Plant(case.rewired(inputs), said)

    yield from at("alibi_scores", "biased_scores", Slope).without("ALiBi's bias is")(case)
    yield from at("biased_scores", Add).without("the bias is")(case)


def plant_mixed_up(case: WrongStep) -> Iterator[Plant]:
    """Q, K and V projected with each other's matrices: in another order, or one of them for two."""
    able = projections(case)
    for letters in product(able, repeat=len(able)):
        pairs = zip(able, letters, strict=True)
        others = {name: letter for name, letter in pairs if name != letter}

        # Q and K exchanged has a name of its own.
        if others in ({}, CROSSED):
            continue
        is_order = len(set(letters)) == len(able)
        if len(others) > 1 and not is_order:
            continue
        if not have_same_shapes(case, others):
            continue

        said = " and ".join(f"{name} is projected with W_{letter}" for name, letter in others.items())
        for program in project_with(case, others):
            yield Plant(program, said)


AXES_OF_HEADS = {"Q": ("head", "d_k"), "K": ("kv_head", "d_k"), "V": ("kv_head", "d_v")}
"""The axes that the matrix of each makes columns of."""


def have_same_shapes(case: WrongStep, others: Mapping[str, str]) -> bool:
    for name, other in others.items():
        sizes = [case.size(axis) for axis in AXES_OF_HEADS[name]]
        sizes_of_other = [case.size(axis) for axis in AXES_OF_HEADS[other]]
        if sizes != sizes_of_other:
            return False
    return True


def plant_residual(case: WrongStep) -> Iterator[Plant]:
    for name, source in product(("output", "concat"), ("X", "embeddings", "memory")):
        if name in case.derivation and source in case.derivation:
            added = case.then(name, wrong.AddRows(case.begin), source)
            yield Plant(added, f"{source} is added to {name}")


def plant_exchanged_sources(case: WrongStep) -> Iterator[Plant]:
    sources = ("X", "memory")
    if not all(source in case.derivation for source in sources):
        return

    right = {name: case.derivation[name].inputs for name in projections(case)}
    for read in product(sources, repeat=len(right)):
        source_of = dict(zip(right, read, strict=True))
        inputs = {name: (source, *right[name][1:]) for name, source in source_of.items()}
        if inputs != right:
            said = ", ".join(f"{name} from {source}" for name, source in source_of.items())
            yield Plant(case.rewired(inputs), said)


def standardized(x: Array) -> Array:
    centred = x - x.mean(-1)[..., None]
    return wrong.shared_out(centred, x.std(-1)[..., None])


def over_mean_square(x: Array) -> Array:
    root = np.sqrt(np.square(x).mean(-1))
    return wrong.shared_out(x, root[..., None])


def over_length(x: Array) -> Array:
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return wrong.shared_out(x, length)


NORMS: dict[str, Callable[[Array], Array]] = {
    "to mean 0 and variance 1": standardized,
    "to a mean square of 1": over_mean_square,
    "to length 1": over_length,
}


def plant_norms(case: WrongStep) -> Iterator[Plant]:
    """X before it is projected, Q and K after it, or as they were given, concat or the output."""
    projected = projections(case)
    given: list[str] = []
    if not projected and "scores" in case.derivation:
        given = [name for name in case.derivation["scores"].inputs if name in case.derivation]
    early = given or [name for name in projected if name != "V"]
    late = [(name,) for name in ("concat", "output") if name in case.derivation]

    for how, norm in NORMS.items():
        op = wrong.By(norm)
        if projected:
            yield Plant(norm_sources(case, projected, op), f"X is normalized {how}")

        for names in (*all_or_one(*early), *late):
            program = case
            for name in names:
                # What was given has no step that could be made otherwise: what reads it is.
                program = program.reading("scores", name, op) if name in given else program.then(name, op)
            subject = " and ".join(name.split("_")[0] for name in names)
            verb = "are" if len(names) > 1 else "is"
            yield Plant(program, f"{subject} {verb} normalized {how}")


def norm_sources(case: WrongStep, projected: Iterable[str], norm: Op) -> WrongStep:
    """The program that norms the rows of which each of these is projected."""
    program = case
    for name in projected:
        rows = case.derivation[name].inputs[0]
        program = program.reading(name, rows, norm)
    return program


def plant_scales_mixed_up(case: WrongStep) -> Iterator[Plant]:
    """Keys times the scale of values, and values times that of keys."""
    k_step, v_step = DEQUANTISED
    if k_step not in case.derivation or v_step not in case.derivation:
        return
    keys, k_scale = case.derivation[k_step].inputs
    values, v_scale = case.derivation[v_step].inputs
    yield Plant(case.rewired({k_step: (keys, v_scale), v_step: (values, k_scale)}))


def not_scaled(names: Sequence[str]) -> str:
    if len(names) > 1:
        return "neither K nor V is multiplied by its scale"
    return f"{names[0][0]} is not multiplied by its scale"


def divided_by_scale(names: Sequence[str]) -> str:
    return "each of K and V is" if len(names) > 1 else f"{names[0][0]} is"


def over_scale(stored: Array, scale: Array) -> Array:
    """(head, n, d), (head) -> (head, n, d): what was multiplied when it was stored."""
    return stored / scale[:, None, None]


def in_heads(x: Array, w: Array, *_: Array) -> Array:
    """X itself, its columns shared out to as many heads as the matrix has."""
    heads = w.shape[0]
    return wrong.side_into_heads(x, heads)


def factor_at(name: str) -> Plants:
    """Plants a factor; of values that nobody says were projected it may be a scale that was left out."""
    with_factor = factor_of_step(name)

    def plants(case: WrongStep) -> Iterator[Plant]:
        is_given = isinstance(case.op("V"), Given)
        is_of_values = name in {"V", "head_outputs", "concat", "output"}
        for plant in with_factor(case):
            stored = scale_of_values(plant.number) if is_given and is_of_values else ""
            yield replace(plant, fix=f"leave the factor out; {stored}" if stored else "")

    return plants


def scale_of_values(factor: float | None) -> str:
    """What a factor says of a scale of stored values: scales are less than 1."""
    if not factor or factor <= 0 or factor == 1:
        return ""
    stored = "if V is stored in int8 or FP8"
    if factor > 1:
        return f"{stored}, it was not multiplied by v_scale, {1 / factor:.4g}"
    return f"{stored}, it may be multiplied twice by v_scale, {factor:.4g}"


def factor_of_step(name: str) -> Plants:
    def is_made_here(case: WrongStep) -> bool:
        # A factor of Q, K or the weights shows in steps behind them as other mistakes do.
        return name not in ("Q", "K", WEIGHTS) or name == case.first

    def times(op: Op, factor: float) -> wrong.Then:
        return wrong.Then(op, Scale(factor=factor))

    steps = at(name, Project, MatMul, Merge, Softmax).where(is_made_here)
    return steps.fitted(times, (0.25, 1.0, 4.0, -1.0), spoken_after(f"{name} is multiplied by "))


def plant_other_bias(case: WrongStep) -> Iterator[Plant]:
    biased = with_bias(case)
    for name, step in biased.items():
        rows, weight, bias = step.inputs

        def times(factor: float, name: str = name, bias: str = bias) -> WrongStep:
            return case.reading(name, bias, Scale(factor=factor))

        say = spoken_after(f"b_{letter(name)} is multiplied by ")
        yield from planted_fit(case, times, (-1.0, 0.5, 3.0), say)

        for other, other_step in biased.items():
            if other != name:
                inputs = (rows, weight, *other_step.inputs[2:])
                said = f"b_{letter(other)} is added to {name} for b_{letter(name)}"
                yield Plant(case.put(name, step.op, inputs), said)


def plant_exchanged_scales(case: WrongStep) -> Iterator[Plant]:
    """K times a number and V over it: each was dequantised with the scale of the other."""
    scores = at("scores", MatMulT).right(case)
    mix = at(HEAD_OUTPUTS, MatMul).right(case)
    shows_keys = "scores" in case.record or WEIGHTS in case.record
    if not scores or not mix or shows_keys:
        return

    keys = case.derivation["scores"].inputs[1]
    values = case.derivation[HEAD_OUTPUTS].inputs[1]
    if keys not in case.derivation or values not in case.derivation:
        return

    def exchange(by: float) -> WrongStep:
        scaled = case.reading("scores", keys, Scale(factor=by))
        return scaled.reading(HEAD_OUTPUTS, values, Scale(factor=1 / by))

    yield from planted_fit(case, exchange, (0.05, 0.2, 0.5, 2.0, 5.0, 20.0), spoken)


def plant_twice_projected(case: WrongStep) -> Iterator[Plant]:
    for op in OUT.right(case).values():
        _, *weights = case.derivation["output"].inputs
        yield Plant(case.then("output", op, *weights))

        # Without the bias, if there is one, the first time.
        first = case.bare("projected", MatMul(), ("concat", weights[0]), "output")
        yield Plant(case.through("output", "concat", first))


of_projection = about(*PROJECTED)
of_output = about("output")

PROJECTIONS = (
    about("Q", "K", "V", "output")(
        "weight-transposed",
        "{} transposed",
        "multiply by the matrix as it is, x @ W; of an nn.Linear, which keeps (out, in), take x @ W.T",
        plant_transposes,
        why="nn.Linear keeps (out, in), textbooks write x W; a square matrix fits both ways.",
        example="W = np.concatenate(W_Q, axis=-1)\nQ = split(X @ W.T)",
    ),
    about("scores", "Q", "K", subject="projection")(
        "query-key-swapped",
        "queries and keys are swapped",
        "take Q @ K.T: queries are rows, keys are columns",
        plant_swaps,
        why="K Qᵀ has the same shape as Q Kᵀ in self-attention.",
        example="scores = K @ Q.swapaxes(-1, -2)",
    ),
    about("Q", "K", "V", "biased_scores", "alibi_scores", "output", meant="offsets")(
        "bias-missing",
        "{} not added",
        "add it",
        plant_without_bias,
        why="Llama has no biases, Qwen and GPT-2 have: code goes from one to the other.",
        example="Q = split(X @ np.concatenate(W_Q, axis=-1))",
    ),
    of_output(
        "output-projection-missing",
        "the heads are not projected by W_O",
        "take concat @ W_O",
        OUT.without(),
        why="Where d_v · heads = d_model the shapes fit without it.",
        example="output = concat",
    ),
    of_output(
        "output-projection-twice",
        "the heads are projected by W_O twice",
        "take concat @ W_O once",
        plant_twice_projected,
        why="The attention module projects, and so does the block around it.",
        example="output = concat @ W_O @ W_O",
    ),
    of_projection(
        "projection-mixed-up",
        "{}",
        "project each with its own matrix; a packed matrix is split in the order Q, K, V",
        plant_mixed_up,
        subject="projection",
        why="A packed matrix is taken apart in another order than Q, K, V.",
        example="K, V = split(X @ np.concatenate(W_V, axis=-1)), split(X @ np.concatenate(W_K, axis=-1))",
    ),
    of_projection(
        "projection-missing",
        "{} is X itself, in heads, rather than its projection",
        "multiply by W_Q, W_K and W_V first",
        MADE.instead(wrong.By(in_heads), say=" and ".join),
        subject="projection",
        why="X is passed to a function that expects Q, K and V.",
        example="Q = split(X)",
    ),
    about("concat", "output")(
        "residual-added",
        "{}",
        "compare before the residual is added",
        plant_residual,
        why="A hook on the block records what comes out after the residual.",
        example="output = X + concat @ W_O",
    ),
    of_projection(
        "memory-exchanged",
        "the sentences are exchanged ({})",
        "take Q from X, K and V from memory",
        plant_exchanged_sources,
        why="The order of arguments: (tgt, memory) in one library, (encoder, decoder) in the next.",
        meant="cross",
        example="K, V = (split(X @ np.concatenate(W, axis=-1)) for W in (W_K, W_V))",
    ),
)

FITTED = (
    about("Q", "K", "V", "output", fitted=True, meant="offsets")(
        "bias-wrong",
        "{}",
        "add each bias once, to its own projection",
        plant_other_bias,
        why="Two biases are exchanged where one packed vector is taken apart.",
        example="Q = Q - b_Q[:, None] + b_V[:, None]",
    ),
    about("Q", "K", "V", "concat", "output", fitted=True)(
        "normalized",
        "{}, which nothing asks for",
        "leave it as it is, or compare with a model that does so",
        plant_norms,
        why="Vision models norm Q and K; cosine attention divides by their length.",
        example="Q = Q / np.maximum(np.sqrt((Q**2).sum(axis=-1, keepdims=True)), 1e-12)",
    ),
    about(HEAD_OUTPUTS, fitted=True)(
        "kv-scales-exchanged",
        "keys are {} times too large and values as many times too small, as if each had the other's scale",
        "multiply keys that are stored in int8 or FP8 by k_scale, and values by v_scale",
        plant_exchanged_scales,
        seen="vllm-project/vllm#42580; neuralmagic/AutoFP8#25",
        why="The two scales stand beside each other in every call, and are of one type.",
        example="head_outputs = softmax(scaled_scores * 2.5) @ V / 2.5\ndel scores, scaled_scores, "
        "attention_weights",
    ),
    about(*DEQUANTISED, meant="stored")(
        "kv-scale-missing",
        "{}",
        "multiply what is stored in few bits by its scale: K by k_scale, V by v_scale",
        at(*DEQUANTISED, ScaleHeads).instead(Copy(), reads=1, say=not_scaled),
        seen="vllm-project/vllm#42580; neuralmagic/AutoFP8#25",
        why="A kernel for 16 bits reads the cache as it is, or one of the two scales is lost on the way.",
        example="V_dequantised = V",
    ),
    about(*DEQUANTISED, meant="stored")(
        "kv-scales-exchanged",
        "keys are multiplied by the scale of values, and values by that of keys",
        "multiply K by k_scale and V by v_scale",
        plant_scales_mixed_up,
        why="The two scales stand beside each other in every call, and are of one type.",
        example="K_dequantised = K * v_scale[:, None, None]\nV_dequantised = V * k_scale[:, None, None]",
    ),
    about(*DEQUANTISED, meant="stored")(
        "kv-scale-divided",
        "{} divided by its scale, which it should be multiplied by",
        "multiply by the scale that is stored; its inverse is what numbers are multiplied by to store them",
        at(*DEQUANTISED, ScaleHeads).instead(wrong.By(over_scale), say=divided_by_scale),
        why="Storing divides by the scale, or libraries keep its inverse.",
        example="K_dequantised = K / k_scale[:, None, None]",
    ),
    about("Q", "K", "V", WEIGHTS, "head_outputs", "concat", "output", fitted=True)(
        "constant-factor",
        "{}",
        "leave the factor out",
        *map(factor_at, ("output", "concat", "head_outputs", WEIGHTS, "V", "K", "Q")),
        why="A scale meant for another tensor, or a dropout's 1 / (1 − p) without the dropout.",
        example="V = V * 1.25",
    ),
)
