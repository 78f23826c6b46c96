"""Checks for tests and notebooks: of arrays, and of a module of torch, which is not imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnctl.api import check
from attnctl.inputs.arrays.conventions import BY_HEAD, Convention, row_of
from attnctl.inputs.plan.tensors import stream
from attnctl.math.names import MASK, OUTPUT, SCALED, WEIGHTS, gradient_of, where
from attnctl.record import Trace

if TYPE_CHECKING:
    from attnctl.evidence.walk import Walk
    from attnctl.math import Array
    from attnctl.verbs.check.report import BrokenLaw, Report
    from attnctl.verbs.conform.problem import Problem

GRADIENTS = where(lambda row: bool(row.gradient))


def assert_attention(
    arrays: Trace | Mapping[str, Array], *, backward: bool = False, **options: Any
) -> Report:
    """Assert that every recorded step of attention is right; the report is the message, and is returned.

    Arrays and options are those of `attnctl.check`; gradients among them are held to the backward
    pass, and with `backward` there have to be some. What cannot be told fails too. Raises
    AssertionError with the report as text, and AttnError where there is nothing to compare.
    """
    __tracebackhide__ = True
    report = check(arrays, **options)
    if not report.agrees:
        raise AssertionError(str(report))
    if backward and not any(step.gap for name, step in report.steps.items() if name in GRADIENTS):
        raise AssertionError(f"no gradient was compared; record d_output and d_Q (or do, q.grad)\n{report}")
    return report


def check_module(
    module: Any,
    *inputs: Any,
    keywords: Mapping[str, Any] | None = None,
    backward: bool = False,
    invariants: bool = False,
    **options: Any,
) -> Report:
    """Call an attention module of torch and check what it computed, step by step.

    `inputs` and `keywords` are those of its `forward`. Its weights are read by their names (those
    of nn.MultiheadAttention and of Hugging Face's models are known), what its projections give is
    recorded as they give it, and options say what was intended, as for `attnctl.check`; the
    number of heads is the module's own where it says so. With `backward` so are the gradients that
    torch takes by its inputs, its weights and what its projections give, of a gradient by the output
    drawn from N(0, 1). With `invariants`, what is right is called again and again with other Q, K and V,
    and held to the laws of `attnctl conform --features invariants`, which need no tolerance: what a query
    cannot see is moved, and its row must not change by a bit. Raises AttnError where there is nothing to
    compare.
    """
    keywords = keywords or {}
    if backward:
        inputs = requiring_gradients(inputs)
    names = ("query", "key", "value") if hasattr(module, "in_proj_weight") else ("hidden_states",)
    arrays = {**module.state_dict(), **dict(zip(names, inputs, strict=False)), **keywords}

    with record_projections(module) as inside:
        outputs = in_order(module(*inputs, **keywords))
    returned = dict(zip(("attn_output", "attn_weights"), outputs, strict=False))
    projected = [name for name in inside if (row := row_of(name, ())) and row.ours == (OUTPUT,)]
    if projected:  # what the module returns may be normed, or have its input added
        del returned["attn_output"]
    arrays |= {**inside, **returned}

    by_token = [*names, "attn_output"]
    if backward:
        leaves = leaves_of(names, inputs)
        output = inside[projected[0]] if projected else outputs[0]
        arrays |= differentiate(output, {**dict(module.named_parameters()), **leaves, **inside})
        by_token += [gradient_of(OUTPUT), *(f"{name}.grad" for name in leaves)]
    if getattr(module, "batch_first", True) is False:
        for name in by_token:
            if name in arrays and len(arrays[name].shape) == 3:
                arrays[name] = arrays[name].swapaxes(0, 1)  # from (token, batch, d_model)

    tensors = {name: array for name, array in arrays.items() if is_tensor(array)}
    report = check(tensors, **{**sizes(module), **options})
    if not invariants or not report.agrees:
        return report
    again = partial(attend, module, inputs, keywords, report.walk.record.plan.sizes["head"])
    dtype = str(inputs[0].dtype).rpartition(".")[-1]
    return replace(report, broken=tuple(find_broken(again, report.walk, dtype)))


def leaves_of(names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    """The inputs that gradients are taken by."""
    if len({id(input_) for input_ in inputs[1:3]}) > 1:  # K and V are made of two: neither is all of it
        return {names[0]: inputs[0]}
    return dict(zip(names, inputs, strict=False))


def requiring_gradients(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the tensors that gradients are taken by; one that is given twice is one tensor."""
    leaf_of = {}
    for input_ in inputs:
        if is_tensor(input_) and input_.is_floating_point():
            leaf_of[id(input_)] = input_.detach().clone().requires_grad_()
    return tuple(leaf_of.get(id(input_), input_) for input_ in inputs)


def differentiate(output: Any, by: Mapping[str, Any]) -> dict[str, Any]:
    """The gradient that a backward pass of torch begins with, and those that it gives, as x.grad."""
    torch = sys.modules["torch"]
    drawn = stream(0, gradient_of(OUTPUT), count=output.numel()).standard_normal(tuple(output.shape))
    d_output = output.new_tensor(drawn)

    leaves = {name: array for name, array in by.items() if array is not output and array.requires_grad}
    gradients = torch.autograd.grad(output, list(leaves.values()), d_output, allow_unused=True)
    arrays = {gradient_of(OUTPUT): d_output}
    for name, gradient in zip(leaves, gradients, strict=True):
        if gradient is not None:
            arrays[f"{name}.grad"] = gradient
    return arrays


@contextmanager
def record_projections(module: Any) -> Iterator[dict[str, Any]]:
    """Record the output of each projection inside a module, by its name."""
    outputs: dict[str, Any] = {}

    def hook(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: outputs.update({name: output})

    handles = [part.register_forward_hook(hook(name)) for name, (part, _) in projections_of(module).items()]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def attend(
    module: Any, inputs: Any, keywords: Mapping[str, Any], heads: int, given: Mapping[str, Any]
) -> Any:
    """What a module makes of Q, K and V, (batch, token, heads side by side), as its W_O reads it."""
    torch = sys.modules["torch"]
    read = []
    if getattr(module, "in_proj_weight", None) is not None:  # torch's own: its projections are no modules
        module, one = deepcopy(module), torch.eye(module.embed_dim)
        own = {"in_proj_weight": one.repeat(3, 1), "out_proj.weight": one}
        state = module.state_dict()
        module.load_state_dict({name: own.get(name, torch.zeros_like(state[name])) for name in state})
        module.batch_first, inputs = True, given.values()

    def project(ours: tuple[str, ...], groups: int) -> Callable[..., Any]:
        parts = [given[name].unflatten(-1, (groups, -1)) for name in ours]
        return lambda _module, _inputs, output: torch.cat(parts, dim=-1).reshape(output.shape)

    with ExitStack() as hooks, torch.no_grad():
        for part, row in projections_of(module).values():
            if row.ours and {*row.ours} <= given.keys():
                hook = part.register_forward_hook(project(row.ours, heads if row.layout == BY_HEAD else 1))
            elif row.ours == (OUTPUT,):
                hook = part.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
            else:
                continue
            hooks.callback(hook.remove)
        result = module(*inputs, **keywords)
    return [*read, *in_order(result)][0]


def find_broken(attend: Callable[[dict[str, Any]], Any], walk: Walk, dtype: str) -> Iterator[BrokenLaw]:
    """The laws of `conform` that two calls of a layer break: `attend` gives what it makes of Q, K and V.

    These are drawn in the sizes of those in a walk, and hidden from each other as there.
    """
    import numpy as np

    from attnctl.verbs.check.report import BrokenLaw
    from attnctl.verbs.conform.call import Answer
    from attnctl.verbs.conform.case import INPUTS, Case
    from attnctl.verbs.conform.invoke import Framework, to_numpy
    from attnctl.verbs.conform.layout import lay_inputs
    from attnctl.verbs.conform.options import make_problem
    from attnctl.verbs.conform.profile import TargetProfile
    from attnctl.verbs.conform.relations import RELATIONS, hold_relation

    sizes = walk.record.plan.sizes
    case = Case(
        dtype=dtype,
        batch=sizes.get("batch", 1),
        heads=sizes["head"],
        kv_heads=sizes["kv_head"],
        queries=sizes["query"],
        keys=sizes["key"],
        d_k=sizes["d_k"],
        d_v=sizes["d_v"],
    )
    problem = make_problem(case, TargetProfile(layout="bnd"))
    read = walk.derivation[WEIGHTS].inputs
    last_scores = walk.values.get(read[0])
    if last_scores:
        problem.arrays[MASK] = np.broadcast_to(~np.isneginf(last_scores.value), problem.scores)
    # Nothing tells keys or heads apart.
    is_plain = read == (SCALED,) and walk.derivation["scores"].inputs[0] == "Q"

    def call(problem: Problem) -> Answer:
        laid = lay_inputs(problem, [problem.arrays[name] for name in INPUTS])
        given = {name: Framework("torch").give(x, dtype) for name, x in zip(INPUTS, laid, strict=True)}
        return Answer((to_numpy(attend(given)),))

    for relation in RELATIONS.values():
        if relation.plain and not is_plain:
            continue
        held = hold_relation(relation, problem, call)
        if held is None:
            continue
        _, judgement = held
        if not judgement.right:
            yield BrokenLaw(f"With {relation.name}, {relation.sentence}: {judgement.words}")


def projections_of(module: Any) -> dict[str, tuple[Any, Convention]]:
    """The projections inside a module by name, each with what it gives."""
    rows = ((name, part, row_of(name, ())) for name, part in module.named_modules() if name)
    return {name: (part, row) for name, part, row in rows if row and hasattr(part, "weight")}


def in_order(outputs: Any) -> list[Any]:
    """The tensors of what a module returns."""
    several = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [array for array in several if is_tensor(array)]


def is_tensor(value: Any) -> bool:
    """Tell an array of some kind from a number or an object."""
    return hasattr(value, "shape") and len(value.shape) > 0


HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads")


def sizes(module: Any) -> dict[str, int]:
    """Read the numbers of heads off a module: an attribute of its own, or of its config."""
    places = (module, getattr(module, "config", None))
    counts: dict[str, int] = {}
    for option, names in (("heads", HEADS), ("kv_heads", KV_HEADS)):
        values = [getattr(place, name, None) for place in places for name in names]
        numbers = [value for value in values if type(value) is int]
        if numbers:
            counts[option] = numbers[0]
    return counts
