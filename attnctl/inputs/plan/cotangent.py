"""The start of the backward pass: the gradient of the loss by what attention gives."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.draw import stream
from attnctl.inputs.plan.plan import Plan
from attnctl.inputs.plan.tensors import Named, arrays_of
from attnctl.math import Array, Shape
from attnctl.math.backward import root_of
from attnctl.math.derivation import Variant
from attnctl.math.engine.cost import cost
from attnctl.math.kind import DRAWN, GRADIENT_SETTINGS
from attnctl.math.names import OUTPUT, gradient_of


def with_cotangent(kind: Variant, named: Named, settings: Settings) -> tuple[Variant, Named]:
    """The variant and its arrays with the gradient that its backward pass begins at, if it has one.

    Raises AttnError where a file has none, or one of another shape, and where none is asked for.
    """
    if not kind.backward:
        if settings.cotangent:
            place = settings.where(("cotangent",))
            raise AttnError(f"{place}: nothing goes back to gradients; say --backward, too")
        return kind, named
    forward = replace(kind, backward=False).derivation
    name = gradient_of(root_of(forward))
    shapes = {each: array.shape for each, array in arrays_of(named).items()}
    shape = next(each.shape for each in cost(forward, shapes, 1) if gradient_of(each.name) == name)
    if name not in named or settings.cotangent:  # what is asked for goes before what a file brings
        array, how = begin(settings, name, shape)
        alone = array.squeeze().shape == tuple(size for size in shape if size != 1)  # (n, d) of one head
        named = {**named, name: (array.reshape(shape) if alone else array, how)}
    found = named[name][0].shape
    if found != shape:
        raise AttnError(
            f"{name}: {dims(found)}, expected {dims(shape)}, the shape of what it is a gradient by"
        )
    return replace(kind, given={each: how for each, (_, how) in named.items()}), named


def with_gradients(plan: Plan, settings: Settings, d_output: Array | None = None) -> Plan:
    """A plan whose kind says nothing of gradients, with those that the settings ask for.

    Raises AttnError as `with_cotangent` does.
    """
    asked = {name: getattr(settings, name) for name in GRADIENT_SETTINGS}
    named = {name: (array, plan.variant.given[name]) for name, array in plan.given.items()}
    if settings.backward and d_output is not None:
        named[gradient_of(OUTPUT)] = d_output, "given"
    kind, named = with_cotangent(replace(plan.variant, **asked), named, settings)
    return replace(plan, variant=kind, given=arrays_of(named))


def begin(settings: Settings, name: str, shape: Shape) -> tuple[Array, str]:
    """The gradient by the output, and how it came about.

    Drawn it is N(0, 1): a loss that is the sum of the output would hide mistakes, as every row of
    its gradient is the same.
    """
    match settings.cotangent or DRAWN:
        case "drawn":
            rng = stream(settings.seed, gradient_of(OUTPUT), count=prod(shape))
            return rng.standard_normal(shape), f"drawn from N(0, 1), seed {settings.seed}"
        case "ones":
            return np.ones(shape), "ones"
        case path:
            return from_file(path, name, settings), f"from {path}"


def from_file(path: str, name: str, settings: Settings) -> Array:
    """The gradient in a file, under its name or alone."""
    from attnctl.inputs.arrays.reader import as_array
    from attnctl.store import read_one

    trace = read_one(path)
    found = [each for each in (name, gradient_of(OUTPUT)) if each in trace] or list(trace)
    if len(found) > 1 and found[0] not in {name, gradient_of(OUTPUT)}:
        there = f"{path} has {', '.join(trace)}, and no {name}"
        raise AttnError(f"{settings.where(('cotangent',))}: {there}; give the gradient that name")
    return as_array(name, trace[found[0]])
