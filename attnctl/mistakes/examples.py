"""An example of each mistake, carried out: what was meant, and what the lines that make it give."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.inputs.plan import Plan
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.inputs.plan.tensors import stream
from attnctl.math import Array
from attnctl.math.derivation import Rotary
from attnctl.math.engine import carry_out
from attnctl.math.kind import HeadNorm, documents_in
from attnctl.math.names import (
    MASKED,
    MEMORY,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    STORED_SCALES,
    TABLE,
    Q,
    X,
)
from attnctl.math.rules import Alibi, Causal, Documents, Mask, Positions, Softcap, VisibilityRule, Window
from attnctl.mistakes.mistake import Mistake
from attnctl.mistakes.wrong import side_by_side, side_into_heads, softmax
from attnctl.record import Trace

SEES = np.tri(6, 6, 1, dtype=bool) & (np.arange(36).reshape(6, 6) % 5 != 2)
BLIND = SEES & (np.arange(6) != 2)[:, None]
TURNED = np.stack([np.roll(SEES, turn, axis=0) for turn in range(6)])[:, None]
"""Masks: one that is not symmetric, one with a row that sees nothing, and one of each member of a batch."""

D_MODEL = 8

LEARNED = np.random.RandomState(0).standard_normal((9, D_MODEL)).tolist()
"""A table of learned positions."""

PLACES = np.indices((2, 3)).reshape(2, -1)
APART = PLACES[:, :, None] - PLACES[:, None]
INDEX = (APART[0] + 1) * 5 + APART[1] + 2
"""Which of 15 numbers each of six tokens reads for each, which are two rows of three."""


@dataclass(frozen=True)
class ExampleKind:
    """A kind of attention, and its arrays by name: their shape, or their numbers."""

    settings: Settings
    arrays: Mapping[str, tuple[int, ...] | Array] = field(default_factory=dict)
    loud: float = 1
    """What W_Q is multiplied by, for scores that are large."""

    stretched: tuple[float, ...] = ()
    """The frequencies of the rotation that a model brings."""


def kind(*rules: Any, **given: Any) -> ExampleKind:
    """Two heads on six tokens, but for what is given: settings, arrays, what else a kind has."""
    settings: dict[str, Any] = {"heads": 2} | given
    arrays: dict[str, Any] = {} if Q in given else {X: (6, D_MODEL)}
    for name in ARRAYS:
        if name in given:
            arrays[name] = settings.pop(name)

    beside: dict[str, Any] = {}
    for name in ("loud", "stretched"):
        if name in given:
            beside[name] = settings.pop(name)
    return ExampleKind(Settings(rules=rules, **settings), arrays, **beside)


ARRAYS = (
    *(Q, *PAGES, PAGE_TABLE),
    *(X, MEMORY, "mask", "bias", "sink", "key_lengths", "W_Q", "W_O", "b_Q", "b_K", "b_V", "b_O"),
    *("Q_norm_weight", "K_norm_weight", "W_gate", "position_ids", *STORED_SCALES),
    *("bias_table", "bias_index", PAST_KEY, PAST_VALUE),
)
BATCH = (6, 6, D_MODEL)
LONG = (12, D_MODEL)
PAGED = {Q: (3, 2, 2, 4), **dict.fromkeys(PAGES, (8, 4, 2, 4))}
FAR = {Q: (2, 2, 2, 4), **dict.fromkeys(PAGES, (2**16 + 4, 1, 2, 4))}
RMS = HeadNorm("rms")
NORM_WEIGHTS = {"Q_norm_weight": (4,), "K_norm_weight": (4,)}
ROWS = {"Q_norm_weight": (D_MODEL,), "K_norm_weight": (D_MODEL,)}


@dataclass(frozen=True)
class Strided(VisibilityRule):
    """A rule with a size, as somebody may add one: strided attention (Child et al., 2019)."""

    name: ClassVar[str] = "strided"
    words: ClassVar[str] = "A query sees itself and every {stride}-th key before it."
    relative: ClassVar[bool] = True
    stride: int

    def allows(self, query: Positions, key: Positions) -> Mask:
        """key <= query, a whole number of strides before it."""
        return (key <= query) & ((query - key) % self.stride == 0)


KINDS = {
    "plain": kind(),
    "loud": kind(loud=2),
    "scaled": kind(scale=0.2),
    "large": kind(loud=1000),
    "long": kind(X=LONG),
    "heads": kind(heads=4),
    "batch": kind(X=BATCH),
    "causal": kind(Causal()),
    "long causal": kind(Causal(), X=LONG),
    "heads causal": kind(Causal(), heads=4),
    "batch causal": kind(Causal(), X=BATCH),
    "cached": kind(Causal(), causal_offset=3, memory=(9, D_MODEL)),
    "past": kind(Causal(), past_key=(2, 3, 4), past_value=(2, 3, 4)),
    "cross": kind(memory=(6, D_MODEL)),
    "window": kind(Window(1, 1), X=(8, D_MODEL)),
    "strided": kind(Strided(3), X=(10, D_MODEL)),
    "documents": kind(Documents((0, 2, 5)), X=(9, D_MODEL)),
    "documents sinusoidal": kind(Documents((0, 2, 5)), X=(9, D_MODEL), positions=SINUSOIDAL),
    "masked": kind(mask=SEES),
    "batch masked": kind(mask=TURNED, X=BATCH),
    "cross masked": kind(memory=(4, D_MODEL), mask=np.array([[True, True, False, True]])),
    "masked causal": kind(Causal(), mask=SEES),
    "blind": kind(mask=BLIND),
    "paged": kind(**PAGED, page_table=np.array([[5, 2], [7, 1], [3, 6]]), key_lengths=np.array([7, 3, 6])),
    "paged far": kind(
        **FAR, page_table=np.array([[65_539, 3], [65_537, 65_538]]), key_lengths=np.array([2, 2])
    ),
    "padded": kind(X=(3, 6, D_MODEL), key_lengths=np.array([6, 4, 3])),
    "grouped": kind(heads=4, kv_heads=2, W_Q=(D_MODEL, 16), W_O=(16, D_MODEL)),
    "stored": kind(k_scale=np.array([0.5, 2.0]), v_scale=np.array([0.25, 1.5])),
    "offsets": kind(**dict.fromkeys(("b_Q", "b_K", "b_V", "b_O"), (D_MODEL,))),
    "rotary": kind(positions=Rotary()),
    "placed": kind(positions=Rotary(), position_ids=np.array([0, 0, 0, 1, 2, 3])),
    "stretched": kind(positions=Rotary(), stretched=(0.5, 0.02)),
    "normed": kind(positions=Rotary(), qk_norm=RMS, **NORM_WEIGHTS),
    "normed rows": kind(positions=Rotary(), qk_norm=replace(RMS, over="heads"), **ROWS),
    "gated": kind(gate=True, W_gate=(D_MODEL, D_MODEL)),
    "tempered": kind(temperature=(0.5, 2)),
    "sinusoidal": kind(positions=SINUSOIDAL),
    "learned": kind(positions=LEARNED),
    "sink": kind(sink=(2,)),
    "capped": kind(Softcap(3.0), loud=2),
    "capped causal": kind(Softcap(3.0), Causal(), loud=2),
    "bias": kind(bias=(6, 6)),
    "table": kind(bias_table=(2, 15), bias_index=INDEX),
    "buckets": kind(Causal(), bias_table=(2, 8)),
    "alibi": kind(Alibi(), heads=4),
    "summed": kind(logsumexp=True),
    "blind summed": kind(logsumexp=True, mask=BLIND),
    "summed sink": kind(logsumexp=True, sink=(2,)),
    "chunks": kind(chunks=2),
    "large chunks": kind(chunks=2, loud=1000),
    "chunks sink": kind(chunks=3, sink=(2,)),
    "blind chunks": kind(chunks=2, mask=BLIND),
    "backward": kind(backward=True),
    "backward causal": kind(Causal(), backward=True),
    "backward cached": kind(Causal(), causal_offset=3, memory=(9, D_MODEL), backward=True),
    "backward long": kind(X=LONG, backward=True),
    "backward grouped": kind(heads=4, kv_heads=2, W_Q=(D_MODEL, 16), W_O=(16, D_MODEL), backward=True),
    "backward rotary": kind(positions=Rotary(), backward=True),
    "backward capped": kind(Softcap(3.0), loud=2, backward=True),
    "backward bias": kind(bias=(6, 6), X=BATCH, backward=True),
}

RIGHT = {
    "float32 within": "",
    "every step in its type": "scores = near(Q @ K.swapaxes(-1, -2))\n"
    "scaled_scores = near(scores / d_k**0.5)\n"
    "attention_weights = near(softmax(scaled_scores))",
    "queries scaled": "scores = near(Q / d_k**0.5) @ K.swapaxes(-1, -2)\nscaled_scores = scores",
    "weights in its type": "attention_weights = near(softmax(scaled_scores))",
    "keys in another order": "attention_weights = softmax(scaled_scores[..., ::-1])[..., ::-1]\n"
    "head_outputs = attention_weights[..., ::-1] @ V[..., ::-1, :]",
    "online softmax in blocks": "top, total, sums = -np.inf, 0, 0\n"
    "for at in range(0, keys, 64):\n"
    "    s, last = scaled_scores[..., at : at + 64], top\n"
    "    top = np.maximum(top, s.max(axis=-1, keepdims=True))\n"
    "    e = np.exp(s - top)\n"
    "    total = total * np.exp(last - top) + e.sum(axis=-1, keepdims=True)\n"
    "    sums = sums * np.exp(last - top) + near(e) @ V[..., at : at + 64, :]\n"
    "attention_weights = softmax(scaled_scores)\n"
    "head_outputs = sums / total",
}
"""Right programs that round in their own way, by what is done: of plain attention, forth and back.

`near` rounds to the type that a program is in; a kernel counts in float32 at least, and rounds its output.
"""


@dataclass(frozen=True)
class PlantedRun:
    """A run as it was meant and as the mistake makes it, and the arrays that both begin with."""

    meant: Settings
    given: dict[str, Array]
    right: Trace
    wrong: Trace


def carry_out_example(mistake: Mistake) -> PlantedRun:
    meant = KINDS[mistake.meant]
    arrays = WEIGHTS | dict(meant.arrays)
    given = {name: example_array(name, array, meant.loud) for name, array in arrays.items()}
    prepared = plan_arrays(given, meant.settings, {})
    if meant.stretched:
        prepared = stretch_rotation(prepared, meant.stretched)

    wrong = with_lines(prepared, mistake.example, names_for(meant, given))
    return PlantedRun(meant.settings, given, prepared.run(), wrong)


WEIGHTS: dict[str, Any] = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), (D_MODEL, D_MODEL))


def example_array(name: str, given: tuple[int, ...] | Array, loud: float) -> Array:
    """An array of the example: as it is given, or drawn from its name."""
    if isinstance(given, np.ndarray):
        return given
    drawn = stream(0, "example", name, count=prod(given)).standard_normal(given)
    factor = loud if name == "W_Q" else 1
    spread = D_MODEL if TABLE[name].is_weight else 1
    return drawn * factor / np.sqrt(spread)


def stretch_rotation(prepared: Plan, frequencies: tuple[float, ...]) -> Plan:
    variant = prepared.variant
    rotary = replace(variant.rotary or Rotary(), frequencies=frequencies)
    return replace(prepared, variant=replace(variant, rotary=rotary))


def with_lines(prepared: Plan, lines: str, names: dict[str, Any]) -> Trace:
    """The run in which these lines give the steps that they assign; what they delete is not recorded."""
    known = {**prepared.given, **names}
    tree = ast.parse(lines)

    def pass_through(step: str) -> Callable[[Array], Array]:
        code = code_up_to(step, tree.body)

        def edit(right: Array) -> Array:
            known[step] = right.copy()
            if step == MASKED:
                known["hidden"] = np.isneginf(right)

            # The lines may read what is right of this step, and steps before it as they were made.
            scope = dict(known)
            exec(code, scope)  # noqa: S102  (lines of our own catalogue)
            known[step] = np.asarray(scope[step])
            return known[step]

        return edit

    edits = {step.name: pass_through(step.name) for step in prepared.derivation}
    with np.errstate(all="ignore"):
        outcome = carry_out(prepared.derivation, prepared.given, prepared.dtype, edits=edits)

    deleted = list_used(tree, ast.Del)
    trace = prepared.record(outcome)
    kept = [name for name in trace if name not in deleted]
    return trace.select(kept)


def code_up_to(step: str, statements: Sequence[ast.stmt]) -> CodeType:
    """The lines up to the last that assigns this step: none where none does."""
    last = 0
    for number, statement in enumerate(statements, 1):
        if step in list_assigned(statement):
            last = number
    return compile(ast.Module(list(statements[:last]), []), "example", "exec")


def list_used(node: ast.AST, used: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """The names that are read, assigned or deleted, or all of them."""
    names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, used)}


def list_assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement assigns, or numbers of which it assigns."""
    assigned: set[str] = set()
    for node in ast.walk(statement):
        if not isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        target = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(target, ast.Name):
            assigned.add(target.id)
    return assigned


# --- what the lines may use beside NumPy and the steps ---


def names_for(meant: ExampleKind, given: Mapping[str, Array]) -> dict[str, Any]:
    if PAGE_TABLE in given:
        return names_of_pages(given)

    heads = meant.settings.heads or 1
    n = given[X].shape[-2]
    keys = given.get(MEMORY, given[X]).shape[-2]
    return {
        "np": np,
        "softmax": softmax,
        "rotate": rotate,
        "project": project,
        "rms": rms,
        "merge": side_by_side,
        "split": lambda x: side_into_heads(x, heads),
        "n": n,
        "keys": keys,
        "heads": heads,
        "d_model": D_MODEL,
        "d_k": given["W_Q"].shape[-1] // heads,
        "distance": abs(np.arange(n)[:, None] - np.arange(keys)),
        "lengths": given.get("key_lengths"),
        "bias_index": given.get("bias_index"),
        "table": np.array(LEARNED),
        "starts": documents_in(meant.settings),
    }


def names_of_pages(given: Mapping[str, Array]) -> dict[str, Any]:
    table = given[PAGE_TABLE]
    slots = given[PAGES[0]].shape[1]
    return {
        "np": np,
        "softmax": softmax,
        "gather": gather,
        "page_table": table,
        "lengths": given["key_lengths"],
        "slots": slots,
        "keys": table.shape[1] * slots,
    }


def gather(pages: Array, table: Array, lengths: Array) -> Array:
    """(page, slot, head, d), (batch, page) -> (batch, head, key, d), zeros from each length on."""
    rows = pages[table].reshape(len(table), -1, *pages.shape[2:])
    there = np.arange(rows.shape[1]) < lengths[:, None]
    return np.where(there[..., None, None], rows, 0).swapaxes(1, 2)


def project(x: Array, w: Array) -> Array:
    """(…, n, d_model), (head, d_model, d) -> (…, head, n, d)."""
    return np.asarray(x[..., None, :, :] @ w)


def rms(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6))


def rotate(
    x: Array,
    theta: float = 10000.0,
    positions: Array | None = None,
    *,
    neighbours: bool = False,
    exchanged: bool = False,
) -> Array:
    """Rotary positions of halves, or of neighbours; or with sine and cosine exchanged."""
    n, d = x.shape[-2:]
    half = d // 2
    places = np.arange(n) if positions is None else positions
    angle = places[:, None] * theta ** (-2 * np.arange(half) / d)
    cos = np.cos(angle)
    sin = np.sin(angle)
    if exchanged:
        cos, sin = sin, cos

    first = slice(0, None, 2) if neighbours else slice(0, half)
    second = slice(1, None, 2) if neighbours else slice(half, None)
    a = x[..., first]
    b = x[..., second]
    out = np.empty_like(x)
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out
