"""Mistakes in scaling scores and squeezing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.ops import Copy, Hide, MatMulT, Project, Scale, Softmax, Squeeze
from attnctl.mistakes import wrong
from attnctl.mistakes.fit import planted_fit, spoken
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, instead

WEIGHTS = "attention_weights"

FACTORS = (1 / 16, 1 / 4, 1 / 2, 0.8, 1.25, 2.0, 4.0, 16.0, -1.0, -4.0)
"""Where a search for another factor begins, as parts of the right one."""


def factor_of(scale: Scale) -> float:
    return 1 / sqrt(scale.d_k) if scale.factor is None else scale.factor


def plant_scale(
    factor: Callable[[WrongStep, Scale], float | None],
) -> Callable[[WrongStep], Iterator[Plant]]:
    """Plants another factor."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        scale = case.op("scaled_scores")
        if isinstance(scale, Scale) and (other := factor(case, scale)) is not None:
            yield Plant(case.put("scaled_scores", Scale(factor=other)))

    return plants


def plant_no_scale(case: WrongStep) -> Iterator[Plant]:
    """The scores as they are."""
    scale = case.op("scaled_scores")
    if isinstance(scale, Scale):
        said = (
            f"multiply Q Kᵀ by {scale.factor:g}" if scale.factor else f"divide Q Kᵀ by np.sqrt({scale.d_k})"
        )
        yield Plant(case.put("scaled_scores", Copy()), said)


def by_d_k(case: WrongStep, scale: Scale) -> float | None:
    """1 / d_k."""
    d_k = case.size("d_k") or (scale.d_k if scale.factor is None else None)
    return None if d_k is None else 1 / d_k


def by_root_of_d_model(case: WrongStep, scale: Scale) -> float | None:
    """1 / √d_model."""
    heads, d_k = case.size("head"), case.size("d_k")
    d_model = case.size("d_model") or (heads * d_k if heads and d_k else None)
    return None if d_model is None else 1 / sqrt(d_model)


def plant_twice(case: WrongStep) -> Iterator[Plant]:
    """Scaled once more: at the scores, in Q Kᵀ, in Q, or after they were written down."""
    scale, softmax = case.op("scaled_scores"), case.op(WEIGHTS)
    if not isinstance(scale, Scale):
        return
    again = Scale(factor=factor_of(scale))
    yield Plant(case.put("scaled_scores", wrong.Then(scale, again)))
    for name, kind in (("scores", MatMulT), ("Q", Project)):
        op = case.op(name)
        if isinstance(op, kind):
            yield Plant(case.put(name, wrong.Then(op, again)))
    if isinstance(softmax, Softmax):
        yield Plant(case.put(WEIGHTS, wrong.By(lambda s: softmax.apply(wrong.visible(s, again.apply)))))


def plant_already_scaled(case: WrongStep) -> Iterator[Plant]:
    """Scores that were scaled before they were written down."""
    scale = case.op("scaled_scores")
    if not isinstance(scale, Scale):
        return
    for name, kind in (("scores", MatMulT), ("Q", Project), ("K", Project)):
        op = case.op(name)
        if case.first == name and isinstance(op, kind):
            yield Plant(case.put_all({name: wrong.Then(op, scale), "scaled_scores": Copy()}), name)


def plant_other_factor(case: WrongStep) -> Iterator[Plant]:
    """Plant another factor, at the scores or in softmax."""
    scale, softmax = case.op("scaled_scores"), case.op(WEIGHTS)
    if isinstance(scale, Scale):
        right = factor_of(scale)
        yield from planted_fit(
            case,
            lambda factor: case.put("scaled_scores", Scale(factor=factor)),
            [right * part for part in FACTORS],
            lambda factor: said_as_divisor(factor, right),
        )
    if isinstance(softmax, Softmax) and ("scaled_scores" in case.record or not isinstance(scale, Scale)):
        yield from planted_fit(
            case,
            lambda factor: case.put(
                WEIGHTS, wrong.By(lambda s: softmax.apply(wrong.visible(s, lambda x: factor * x)))
            ),
            FACTORS,
            lambda factor: f"softmax is taken of {spoken(factor)} times the scores",
        )


def said_as_divisor(factor: float, right: float) -> str:
    """Divided by √17; multiplied by 2 where that is shorter."""
    divisor = spoken(1 / factor, 1 / right)
    if abs(factor) >= 1 or ("√" not in divisor and f"{abs(factor):.15g}" == f"{abs(factor):.2g}"):
        return f"the scores are multiplied by {spoken(factor, right)}"
    return f"the scores are divided by {divisor}"


SCALING = (
    Mistake(
        "no-scale",
        ("scaled_scores",),
        "the scores are not scaled",
        "{}",
        plant_no_scale,
        subject="scale",
        why=(
            "The division is easily lost in copying the formula, and small sizes hide it: with d_k = 1 "
            "nothing changes."
        ),
        example="scaled_scores = scores",
    ),
    Mistake(
        "scale-by-d_k",
        ("scaled_scores",),
        "the scores are divided by d_k rather than its root",
        "divide by np.sqrt(d_k)",
        plant_scale(by_d_k),
        subject="scale",
        why="The root is dropped, or d_k is taken for a name of the root.",
        example="scaled_scores = scores / d_k",
    ),
    Mistake(
        "scale-by-sqrt-d_model",
        ("scaled_scores",),
        "the scores are divided by √d_model",
        "divide by the root of the size of one head, np.sqrt(d_k)",
        plant_scale(by_root_of_d_model),
        subject="scale",
        why="With one head d_model and d_k are the same; the code is kept when heads are added.",
        example="scaled_scores = scores / np.sqrt(d_model)",
    ),
    Mistake(
        "scaled-twice",
        ("Q", "scores", "scaled_scores", WEIGHTS),
        "the scores are scaled twice",
        "scale Q or Q Kᵀ, not both",
        plant_twice,
        subject="scale",
        why="Q is scaled where it is made, and a library function scales again.",
        example="scores = (Q / np.sqrt(d_k)) @ K.swapaxes(-1, -2)",
    ),
    Mistake(
        "scores-already-scaled",
        ("scores",),
        "the array called {} holds scaled numbers",
        "write it down before it is scaled, or say --name scores=scaled_scores if it is the scores",
        plant_already_scaled,
        subject="scale",
        why="What goes into softmax is what people call scores.",
        example="scores = Q @ K.swapaxes(-1, -2) / np.sqrt(d_k)\nscaled_scores = scores",
    ),
)

OTHER_SCALE = (
    Mistake(
        "scale-other",
        ("scaled_scores", WEIGHTS),
        "{}",
        "divide Q Kᵀ by np.sqrt(d_k), once, or give the factor that is meant with --scale",
        plant_other_factor,
        fitted=True,
        subject="scale",
        why="A temperature, or a model's own scale (Gemma's query_pre_attn_scalar).",
        example="scaled_scores = scores * 0.3",
    ),
)


def plant_after_mask(case: WrongStep) -> Iterator[Plant]:
    """−∞ squeezed to −cap, so that hidden keys are seen again; the steps are recorded in either order."""
    cap, hide = case.op("softcapped_scores"), case.op("masked_scores")
    if not isinstance(cap, Squeeze) or not isinstance(hide, Hide):
        return
    previous, *mask = case.derivation["masked_scores"].inputs
    if previous != "softcapped_scores":
        return
    yield Plant(
        case.put("masked_scores", wrong.FiniteHide(hide.offset, hide.at, hide.rules, fill=-cap.cap))
    )
    scaled = (*case.derivation["softcapped_scores"].inputs, *mask)
    weights = case.derivation["attention_weights"]
    both = wrong.Then(hide, cap)
    yield Plant(
        case.put_all({"softcapped_scores": both, "masked_scores": Copy()}, {"softcapped_scores": scaled})
    )
    yield Plant(
        case.put_all(
            {"softcapped_scores": both, "masked_scores": hide, weights.name: weights.op},
            {"softcapped_scores": scaled, "masked_scores": scaled, weights.name: ("softcapped_scores",)},
        )
    )


def plant_before_scale(case: WrongStep) -> Iterator[Plant]:
    """cap · tanh(scores / cap) / √d_k."""
    cap, scale = case.op("softcapped_scores"), case.op("scaled_scores")
    if isinstance(cap, Squeeze) and isinstance(scale, Scale):
        yield Plant(case.put_all({"scaled_scores": Copy(), "softcapped_scores": wrong.Then(cap, scale)}))


def squeezed_by(*functions: Callable[[Array, float], Array]) -> Callable[[WrongStep], Iterator[Plant]]:
    """Plants a function of scores and cap for the soft cap."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        op = case.op("softcapped_scores")
        for function in functions:
            if isinstance(op, Squeeze):
                yield Plant(case.put("softcapped_scores", bent(function, op.cap)))

    return plants


def bent(function: Callable[[Array, float], Array], cap: float) -> wrong.By:
    """A function of scores and cap, the cap put in."""
    return wrong.By(lambda s: function(s, cap))


def plant_other_cap(case: WrongStep) -> Iterator[Plant]:
    """Another cap than was asked for."""
    op = case.op("softcapped_scores")
    if isinstance(op, Squeeze):
        starts = [op.cap * part for part in (0.1, 0.3, 0.6, 1.5, 3.0, 10.0)]
        yield from planted_fit(
            case, lambda cap: case.put("softcapped_scores", Squeeze(abs(cap))), starts, spoken
        )


def plant_unasked_cap(case: WrongStep) -> Iterator[Plant]:
    """A cap where none was asked for: before the mask, or after it."""
    scale, softmax = case.op("scaled_scores"), case.op(WEIGHTS)
    if "softcapped_scores" in case.derivation:
        return
    starts = (0.5, 2.0, 8.0, 20.0, 50.0)
    if isinstance(scale, Scale):
        yield from planted_fit(
            case,
            lambda cap: case.put("scaled_scores", wrong.Then(scale, Squeeze(abs(cap)))),
            starts,
            spoken,
        )
    if isinstance(softmax, Softmax):
        for bend in (lambda s, cap: wrong.visible(s, Squeeze(abs(cap)).apply), squeezed_hidden):
            yield from planted_fit(case, capped_late(case, softmax, bend), starts, spoken)


def squeezed_hidden(s: Array, cap: float) -> Array:
    """Scores squeezed, −∞ to −cap."""
    return Squeeze(abs(cap)).apply(s)


def capped_late(
    case: WrongStep, softmax: Softmax, bend: Callable[[Array, float], Array]
) -> Callable[[float], Derivation]:
    """Softmax of scores that are squeezed first."""
    return lambda cap: case.put(WEIGHTS, wrong.By(lambda s: softmax.apply(bend(s, cap))))


SOFTCAP = (
    Mistake(
        "softcap-after-mask",
        ("softcapped_scores", "masked_scores"),
        "the soft cap comes after the mask, so that hidden scores are −cap instead of −∞",
        "squeeze first, then mask",
        plant_after_mask,
        subject="softcap",
        why="tanh(−∞) is −1: the cap is applied to what is masked already.",
        meant="capped causal",
        example=(
            "hidden = np.triu(np.ones((n, n), bool), k=1)\n"
            "masked_scores = softcapped_scores = 3 * np.tanh(np.where(hidden, -np.inf, scaled_scores) / "
            "3)"
        ),
    ),
    Mistake(
        "softcap-missing",
        ("softcapped_scores",),
        "there is no soft cap",
        "squeeze the scaled scores: cap * np.tanh(scores / cap)",
        instead("softcapped_scores", lambda _: Copy(), Squeeze),
        subject="softcap",
        why="Fused kernels often have no soft cap, and drop it.",
        meant="capped",
        example="softcapped_scores = scaled_scores",
    ),
    Mistake(
        "softcap-before-scale",
        ("softcapped_scores",),
        "the soft cap comes before the scale",
        "scale first, then squeeze",
        plant_before_scale,
        subject="softcap",
        why="The cap is applied to Q Kᵀ, before √d_k.",
        meant="capped",
        example="softcapped_scores = 3 * np.tanh(scores / 3) / np.sqrt(d_k)\ndel scaled_scores",
    ),
    Mistake(
        "softcap-half",
        ("softcapped_scores",),
        "the scores are not both divided by the cap and multiplied by it again",
        "take cap * np.tanh(scores / cap)",
        squeezed_by(
            lambda s, cap: np.tanh(s / cap), lambda s, cap: cap * np.tanh(s), lambda s, _: np.tanh(s)
        ),
        subject="softcap",
        why="c · tanh(s) or tanh(s / c): one of the two factors is left out.",
        meant="capped",
        example="softcapped_scores = np.tanh(scaled_scores / 3)",
    ),
    Mistake(
        "softcap-clipped",
        ("softcapped_scores",),
        "the scores are cut off at the cap rather than squeezed",
        "take cap * np.tanh(scores / cap), not np.clip",
        squeezed_by(lambda s, cap: np.clip(s, -cap, cap)),
        subject="softcap",
        why="A cap sounds like np.clip.",
        meant="capped",
        example="softcapped_scores = np.clip(scaled_scores, -3, 3)",
    ),
    Mistake(
        "softcap-other",
        ("softcapped_scores",),
        "the cap is {}",
        "squeeze to the cap that --softcap gives, or give this one",
        plant_other_cap,
        fitted=True,
        subject="softcap",
        why="Gemma 2 has one cap for attention, 50, and one for its logits, 30.",
        meant="capped",
        example="softcapped_scores = 5 * np.tanh(scaled_scores / 5)",
    ),
    Mistake(
        "softcap-unasked",
        ("scaled_scores", WEIGHTS),
        "the scores are squeezed into (−cap, cap), which nothing asks for; the cap is {}",
        "say --softcap {} if it is meant",
        plant_unasked_cap,
        fitted=True,
        subject="softcap",
        why="The code was written for Gemma 2; the model at hand has no cap.",
        meant="loud",
        example="scaled_scores = 2 * np.tanh(scaled_scores / 2)",
    ),
)
