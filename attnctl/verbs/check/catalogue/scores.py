"""Mistakes in scaling scores and squeezing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

from attnctl.ops import Copy, Hide, MatMulT, Project, Scale, Squeeze
from attnctl.verbs.check import wrong
from attnctl.verbs.check.mistake import Case, Mistake, Plant, instead


def factor_of(scale: Scale) -> float:
    """What the scores should be multiplied with."""
    return 1 / sqrt(scale.d_k) if scale.factor is None else scale.factor


def rescaled(factor: Callable[[Case, Scale], float | None]) -> Callable[[Case], Iterator[Plant]]:
    """Plants another factor."""

    def plants(case: Case) -> Iterator[Plant]:
        scale = case.op("scaled_scores")
        if isinstance(scale, Scale) and (other := factor(case, scale)) is not None:
            yield Plant(case.put("scaled_scores", Scale(factor=other)))

    return plants


def unscaled(case: Case) -> Iterator[Plant]:
    """The scores as they are."""
    scale = case.op("scaled_scores")
    if isinstance(scale, Scale):
        said = (
            f"multiply Q Kᵀ by {scale.factor:g}" if scale.factor else f"divide Q Kᵀ by np.sqrt({scale.d_k})"
        )
        yield Plant(case.put("scaled_scores", Copy()), said)


def by_d_k(case: Case, scale: Scale) -> float | None:
    """1 / d_k."""
    d_k = case.size("d_k") or (scale.d_k if scale.factor is None else None)
    return None if d_k is None else 1 / d_k


def by_root_of_d_model(case: Case, scale: Scale) -> float | None:
    """1 / √d_model."""
    heads, d_k = case.size("head"), case.size("d_k")
    d_model = case.size("d_model") or (heads * d_k if heads and d_k else None)
    return None if d_model is None else 1 / sqrt(d_model)


def twice(case: Case) -> Iterator[Plant]:
    """Scaled once more: at the scores, in Q Kᵀ, or in Q."""
    scale = case.op("scaled_scores")
    if not isinstance(scale, Scale):
        return
    again = Scale(factor=factor_of(scale))
    yield Plant(case.put("scaled_scores", wrong.Then(scale, again)))
    for name, kind in (("scores", MatMulT), ("Q", Project)):
        op = case.op(name)
        if isinstance(op, kind):
            yield Plant(case.put(name, wrong.Then(op, again)))


def already_scaled(case: Case) -> Iterator[Plant]:
    """Scores that were scaled before they were written down."""
    scale, scores = case.op("scaled_scores"), case.op("scores")
    if case.first == "scores" and isinstance(scale, Scale) and isinstance(scores, MatMulT):
        yield Plant(case.put_all({"scores": wrong.Then(scores, scale), "scaled_scores": Copy()}))


SCALING = (
    Mistake(
        "no-scale",
        ("scaled_scores",),
        "the scores are not scaled",
        "{}",
        unscaled,
    ),
    Mistake(
        "scale-by-d_k",
        ("scaled_scores",),
        "the scores are divided by d_k rather than its root",
        "divide by np.sqrt(d_k)",
        rescaled(by_d_k),
    ),
    Mistake(
        "scale-by-sqrt-d_model",
        ("scaled_scores",),
        "the scores are divided by √d_model",
        "divide by the root of the size of one head, np.sqrt(d_k)",
        rescaled(by_root_of_d_model),
    ),
    Mistake(
        "scaled-twice",
        ("Q", "scores", "scaled_scores"),
        "the scores are scaled twice",
        "scale Q or Q Kᵀ, not both",
        twice,
    ),
    Mistake(
        "scores-already-scaled",
        ("scores",),
        "the array called scores holds the scaled ones",
        "call it scaled_scores, or say --name scores=scaled_scores",
        already_scaled,
    ),
)


def after_mask(case: Case) -> Iterator[Plant]:
    """−∞ squeezed to −cap, so that hidden keys are seen again; the steps are recorded in either order."""
    cap, hide = case.op("softcapped_scores"), case.op("masked_scores")
    if not isinstance(cap, Squeeze) or not isinstance(hide, Hide):
        return
    previous, *mask = case.derivation["masked_scores"].inputs
    if previous != "softcapped_scores":
        return
    yield Plant(case.put("masked_scores", wrong.Filled(hide.offset, hide.at, hide.rules, fill=-cap.cap)))
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


SOFTCAP = (
    Mistake(
        "softcap-after-mask",
        ("softcapped_scores", "masked_scores"),
        "the soft cap comes after the mask, so that hidden scores are −cap instead of −∞",
        "squeeze first, then mask",
        after_mask,
    ),
    Mistake(
        "softcap-missing",
        ("softcapped_scores",),
        "there is no soft cap",
        "squeeze the scaled scores: cap * np.tanh(scores / cap)",
        instead("softcapped_scores", lambda _: Copy(), Squeeze),
    ),
)
