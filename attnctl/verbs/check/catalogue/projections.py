"""Mistakes in what X is multiplied with, and in what is added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnctl.ops import Add, Copy, MatMul, MatMulT, Project, Slope
from attnctl.verbs.check import wrong
from attnctl.verbs.check.mistake import Case, Mistake, Plant, everywhere_or_once

PROJECTED = ("Q", "K", "V")


def projections(case: Case) -> tuple[str, ...]:
    """Those of Q, K and V that are computed."""
    return tuple(name for name in PROJECTED if isinstance(case.op(name), Project))


def square(case: Case, name: str) -> str | None:
    """Whether a step's matrix can be transposed: as it is fused, or head by head."""
    if name not in case.derivation or not isinstance(case.op(name), (Project, MatMul)):
        return None
    weight = case.derivation[name].inputs[1]
    if weight not in case.record:
        return None
    *heads, rows, columns = case.record.trace[weight].shape
    fused = heads[0] * columns if heads else columns
    return "fused" if fused == rows else "by head" if rows == columns else None


def transposed(case: Case) -> Iterator[Plant]:
    """X Wᵀ, concat W_Oᵀ: every matrix, or some."""
    able = [name for name in (*projections(case), "output") if square(case, name)]
    for names in everywhere_or_once(*able):
        ops = {
            name: wrong.Arranged(case.derivation[name].op, (wrong.unmoved, move(case, name)))
            for name in names
        }
        yield Plant(case.put_all(ops), listed(f"W_{letter(name)}" for name in names))


def move(case: Case, name: str) -> wrong.Move:
    """How a step's matrix is transposed."""
    if name == "output":
        return wrong.transpose
    return wrong.transpose_fused if square(case, name) == "fused" else wrong.transpose


def letter(name: str) -> str:
    """Q, K, V or O."""
    return "O" if name == "output" else name


def listed(names: Iterable[str]) -> str:
    """W_Q is; W_Q, W_K and W_V are."""
    *most, last = names
    return f"{', '.join(most)} and {last} are" if most else f"{last} is"


def swapped(case: Case) -> Iterator[Plant]:
    """K Qᵀ for Q Kᵀ; or each projected with the other's matrix."""
    scores = case.op("scores")
    if isinstance(scores, MatMulT) and case.size("query") == case.size("key"):
        yield Plant(case.put("scores", wrong.Arranged(scores, after=wrong.transpose)))
    if {"Q", "K"} <= set(projections(case)) and case.size("head") == case.size("kv_head"):
        q, k = case.derivation["Q"], case.derivation["K"]
        for last in (3, 2):  # with its bias, or the matrix alone
            crossed = {
                "Q": (q.inputs[0], *k.inputs[1:last], *q.inputs[last:]),
                "K": (k.inputs[0], *q.inputs[1:last], *k.inputs[last:]),
            }
            yield Plant(case.put_all({"Q": q.op, "K": k.op}, crossed))


def without_bias(case: Case) -> Iterator[Plant]:
    """A projection without its b, scores without their bias."""
    able = (*projections(case), "output")
    biased = [name for name in able if name in case.derivation and len(case.derivation[name].inputs) > 2]
    for names in everywhere_or_once(*biased):
        inputs = {name: case.derivation[name].inputs[:2] for name in names}
        ops = {name: case.derivation[name].op for name in names}
        yield Plant(case.put_all(ops, inputs), listed(f"b_{letter(name)}" for name in names))
    for name in ("alibi_scores", "biased_scores"):
        op = case.op(name)
        if isinstance(op, (Add, Slope)):
            said = "ALiBi's bias is" if isinstance(op, Slope) else "the bias is"
            yield Plant(case.put(name, Copy(), case.derivation[name].inputs[:1]), said)


def unprojected(case: Case) -> Iterator[Plant]:
    """concat as the output."""
    step = case.derivation["output"]
    if isinstance(step.op, MatMul) and case.found.shape[-1] == concat_width(case):
        yield Plant(case.put("output", Copy(), step.inputs[:1]))


def concat_width(case: Case) -> int:
    """heads · d_v."""
    weight = case.derivation["output"].inputs[1]
    return int(case.record.trace[weight].shape[0]) if weight in case.record else 0


def without_positions(case: Case) -> Iterator[Plant]:
    """X as the embeddings alone."""
    step = case.derivation["X"]
    if isinstance(step.op, Add):
        yield Plant(case.put("X", Copy(), step.inputs[:1]))


PROJECTIONS = (
    Mistake(
        "weight-transposed",
        ("Q", "K", "V", "output"),
        "{} transposed",
        "multiply by the matrix as it is, x @ W; of nn.Linear, whose weight is (out, in), use x @ W.T",
        transposed,
    ),
    Mistake(
        "query-key-swapped",
        ("scores", "Q", "K"),
        "queries and keys are swapped",
        "take Q @ K.T: queries are rows, keys are columns",
        swapped,
    ),
    Mistake(
        "bias-missing",
        ("Q", "K", "V", "biased_scores", "alibi_scores", "output"),
        "{} not added",
        "add it",
        without_bias,
    ),
    Mistake(
        "output-projection-missing",
        ("output",),
        "the heads are not projected by W_O",
        "take concat @ W_O",
        unprojected,
    ),
    Mistake(
        "positions-missing",
        ("X",),
        "positions are not added to the embeddings",
        "attend over embeddings + positions",
        without_positions,
    ),
)
