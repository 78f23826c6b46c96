"""What to write instead, in the numbers of the plan at hand.

A fix of the catalogue has names in { }: of the scale, of the angles, of a window. Each is said here by the
right op of the plan, so that a model's own number is told and not the usual one. Where no plan is at hand,
or its lines have no such op, it is said in words that hold for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import sqrt
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math.names import MASKED, SCALED
from attnctl.math.ops import Hide, LayerNorm, Op, Repeat, Rotate, Scale, Slope, Squeeze, Temper
from attnctl.math.ops.norms import Norm
from attnctl.math.rules import Causal, PerBatch, Window, alibi_slopes

if TYPE_CHECKING:
    from attnctl.inputs.plan import DumpPlan

AnyOp = TypeVar("AnyOp", bound=Op)

MOST_LISTED = 8
"""Numbers of a list that are told one by one."""

EXACTLY = 1e-9
"""Two numbers are one when they are apart by less than this part."""

NAMED = re.compile(r"\{([a-z_]+)\}")


class Fact(NamedTuple):
    """What is said of one op of a plan; nothing where the plan has none."""

    of_plan: Callable[[DumpPlan], str]
    otherwise: str
    """What holds whatever the plan is."""


def write_fix(fix: str, detail: str = "", plan: DumpPlan | None = None) -> str:
    """The fix with the detail of a plant for {}, and for each name in { } what the plan says of it."""

    def say(name: re.Match[str]) -> str:
        fact = FACTS[name[1]]
        return (fact.of_plan(plan) if plan else "") or fact.otherwise

    return NAMED.sub(say, fix).replace("{}", detail)


def first_op(plan: DumpPlan, kind: type[AnyOp], *names: str) -> AnyOp | None:
    """The op of the first step of these names, or of any, that is of this kind."""
    for step in plan.derivation:
        if isinstance(step.op, kind) and (not names or step.name in names):
            return step.op
    return None


def counted(value: PerBatch) -> str:
    """6; or 6, 4 and so on, one for each member of the batch."""
    if isinstance(value, int):
        return str(value)
    shown = ", ".join(map(str, value[:MOST_LISTED]))
    return f"{shown}, …" if len(value) > MOST_LISTED else shown


# --- scale and soft cap ---


def say_factor(factor: float, d_k: int) -> str:
    """0.25; 0.4212 (1.459 / √12)."""
    one_over_square = factor**-2 if factor > 0 else 0.0
    whole = round(one_over_square)
    if one_over_square and abs(one_over_square - whole) < EXACTLY * one_over_square:
        return f"1 / np.sqrt({whole})"

    part_of_usual = factor * sqrt(d_k)
    if d_k > 1 and part_of_usual > 0:
        return f"{factor:.6g} ({part_of_usual:.4g} / √{d_k})"
    return f"{factor:.6g}"


def say_scale(plan: DumpPlan) -> str:
    scale = first_op(plan, Scale, SCALED)
    if scale is None:
        return ""
    if scale.factor is None:
        return f"divide Q Kᵀ by np.sqrt(d_k), here √{scale.d_k}"
    return f"multiply Q Kᵀ by {say_factor(scale.factor, scale.d_k)}"


def say_cap(plan: DumpPlan) -> str:
    squeeze = first_op(plan, Squeeze)
    return f"{squeeze.cap:g} * np.tanh(scores / {squeeze.cap:g})" if squeeze else ""


def say_cap_slope(plan: DumpPlan) -> str:
    squeeze = first_op(plan, Squeeze)
    return f"1 − (softcapped_scores / {squeeze.cap:g})²" if squeeze else ""


# --- positions ---


def base_of(turn: Rotate, columns: int | None = None) -> float | None:
    """The base θ of angles pos · θ^(−2i/d); None where the frequencies are those of no base."""
    if not turn.frequencies:
        return turn.theta

    frequencies = np.array(turn.frequencies, np.float64)
    pairs = len(frequencies)
    begins_at_1 = abs(frequencies[0] - 1) <= 1e-6
    if pairs < 2 or not begins_at_1 or (frequencies <= 0).any():
        return None

    # The last frequency is θ^(−2 (pairs − 1) / d).
    dims = columns or 2 * pairs
    base = float(frequencies[-1] ** (-dims / (2.0 * (pairs - 1))))
    base = float(f"{base:.5g}")  # frequencies of float32 tell no more digits
    expected = base ** (-2.0 * np.arange(pairs) / dims)
    return base if np.allclose(frequencies, expected, rtol=1e-4) else None


def number(value: float) -> str:
    """10000, 85499.1, 0.5: six digits, whole ones without a point."""
    if value >= 1e5 and value == round(value):
        return f"{value:.0f}"
    return f"{value:.6g}"


def say_angles(plan: DumpPlan) -> str:
    turn = first_op(plan, Rotate)
    if turn is None:
        return ""
    base = base_of(turn)
    times = f", times {turn.factor:.6g}" if turn.factor != 1 else ""
    if base is None:
        return f"turn by pos · frequency, the frequencies as rope_parameters stretch them{times}"
    return f"turn by pos · {number(base)}^(−2i/d), d the columns that are turned{times}"


def say_starts(plan: DumpPlan) -> str:
    start_of: dict[str, PerBatch] = {}
    for step in plan.derivation:
        letter = step.name[0]
        if isinstance(step.op, Rotate) and letter in "QK":
            start_of[letter] = step.op.start
    if not start_of:
        return ""

    words = [f"{letter} from {counted(start)}" for letter, start in start_of.items()]
    return f"count the positions of {' and of '.join(words)}"


def say_pairs(plan: DumpPlan) -> str:
    turn = first_op(plan, Rotate)
    if turn is None:
        return ""
    if turn.interleaved:
        return "turn columns 2i and 2i + 1 together, as GPT-J does"

    dims = turn.dims or 0
    apart = len(turn.frequencies) or dims // 2
    return f"turn columns i and i + {apart or 'd/2'} together, as Llama and GPT-NeoX do"


def say_dims(plan: DumpPlan) -> str:
    turn = first_op(plan, Rotate)
    if turn is None:
        return ""
    dims = turn.dims or 2 * len(turn.frequencies)
    return f"turn the first {dims} columns of each head" if dims else "turn all columns of each head"


def say_slopes(plan: DumpPlan) -> str:
    heads = plan.sizes.get("head", 0)
    if not heads or first_op(plan, Slope) is None:
        return ""

    shown = ", ".join(f"{slope:.4g}" for slope in alibi_slopes(heads)[:MOST_LISTED])
    more = ", …" if heads > MOST_LISTED else ""
    subject = "the slope is" if heads == 1 else f"the slopes of {heads} heads are"
    return f"{subject} {shown}{more}"


def say_temperature(plan: DumpPlan) -> str:
    temper = first_op(plan, Temper)
    return f"multiply Q by {temper.factor}" if temper else ""


# --- norms ---


def norm_of(plan: DumpPlan) -> Norm | None:
    """The norm of Q and K; else the first that there is, as before a layer."""
    return first_op(plan, Norm, "Q_normed", "K_normed") or first_op(plan, Norm)


def say_norm(plan: DumpPlan) -> str:
    norm = norm_of(plan)
    if norm is None:
        return ""
    kind = "LayerNorm" if isinstance(norm, LayerNorm) else "RMSNorm"
    rows = ", all heads as one row" if norm.heads else ""
    weight = ", times 1 + weight" if norm.plus_one else ""
    return f"{kind} with an epsilon of {norm.eps:g}{rows}{weight}"


def say_epsilon(plan: DumpPlan) -> str:
    norm = norm_of(plan)
    return f"add {norm.eps:g} below the root" if norm else ""


def say_weight(plan: DumpPlan) -> str:
    norm = first_op(plan, Norm)
    if norm is None:
        return ""
    return "multiply by 1 + weight" if norm.plus_one else "multiply by the weight as it is"


# --- who sees whom ---


def hide_of(plan: DumpPlan) -> Hide | None:
    steps = plan.derivation
    op = steps[MASKED].op if MASKED in steps else None
    return op if isinstance(op, Hide) else None


def say_offset(plan: DumpPlan) -> str:
    hide = hide_of(plan)
    if hide is None or not any(rule.relative for rule in hide.rules):
        return ""
    if not isinstance(hide.offset, int):
        own = counted(hide.offset)
        return f"let query i see key j when j <= i + offset, {own} for the members of the batch"

    sign = "−" if hide.offset < 0 else "+"
    last = f"i {sign} {abs(hide.offset)}" if hide.offset else "i"
    return f"let query i see key j when j <= {last}: np.tril(…, k={hide.offset})"


def say_window(plan: DumpPlan) -> str:
    hide = hide_of(plan)
    rules = hide.rules if hide else ()
    windows = [rule for rule in rules if isinstance(rule, Window)]
    if not windows:
        return ""

    window = windows[0]
    is_causal = Causal() in rules
    first = end_of_window("−", window.left, otherwise="any key before it")
    last = end_of_window("+", 0 if is_causal else window.right, otherwise="the last key")
    return f"let query i see keys {first} to {last}, both ends counted in"


def end_of_window(sign: str, distance: int | None, otherwise: str) -> str:
    """i − 2; i where the query itself is the last; what is said where there is no end."""
    if distance is None:
        return otherwise
    return f"i {sign} {distance}" if distance else "i"


def say_lengths(plan: DumpPlan) -> str:
    hide = hide_of(plan)
    for rule in hide.rules if hide else ():
        lengths = getattr(rule, "lengths", None)
        if lengths is not None:
            return f"hide keys from {counted(lengths)} on"
    return ""


def say_sharing(plan: DumpPlan) -> str:
    repeat = first_op(plan, Repeat)
    return f"let query head h read kv head h // {repeat.times}" if repeat else ""


FACTS = {
    "scale": Fact(say_scale, "scale Q Kᵀ once, by 1 / np.sqrt(d_k) unless another factor is meant"),
    "cap": Fact(say_cap, "cap * np.tanh(scores / cap)"),
    "cap_slope": Fact(say_cap_slope, "1 − (softcapped_scores / cap)²"),
    "angles": Fact(say_angles, "turn by pos · θ^(−2i/d), d the columns that are turned, θ the base meant"),
    "starts": Fact(say_starts, "count from 0, the keys of a cache included"),
    "pairs": Fact(say_pairs, "Llama and GPT-NeoX turn column i with i + d/2, GPT-J column 2i with 2i + 1"),
    "dims": Fact(say_dims, "turn as many columns as are meant"),
    "slopes": Fact(say_slopes, "take the slopes of get_slopes in the ALiBi paper"),
    "temperature": Fact(say_temperature, "multiply Q by 1 + β ln(1 + ⌊position / L⌋)"),
    "norm": Fact(say_norm, "the norm that is meant, with its epsilon and its weight"),
    "epsilon": Fact(say_epsilon, "add the epsilon that the model has, below the root"),
    "weight": Fact(say_weight, "Gemma's norms multiply by 1 + weight, others by the weight"),
    "offset": Fact(say_offset, "let query i see key j when j <= i + offset: np.tril(…, k=offset)"),
    "window": Fact(say_window, "let query i see keys i − left to i + right, both ends counted in"),
    "lengths": Fact(say_lengths, "hide keys from each member's length on"),
    "sharing": Fact(say_sharing, "let query head h read kv head h // (heads // kv_heads)"),
}
"""What may stand in { } in a fix of the catalogue."""
