"""Checks for tests and notebooks: of arrays, and of a module of torch, which is not imported for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnctl.api import check
from attnctl.base.trace import Trace
from attnctl.inputs.arrays.foreign import row_of
from attnctl.math.names import OUTPUT

if TYPE_CHECKING:
    from attnctl.math import Array
    from attnctl.verbs.check.report import Report


def assert_attention(arrays: Trace | Mapping[str, Array], **options: Any) -> Report:
    """Assert that every recorded step of attention is right; the report is the message, and is returned.

    Arrays and options are those of `attnctl.check`. What cannot be told fails too. Raises
    AssertionError with the report as text, and AttnError where there is nothing to compare.
    """
    __tracebackhide__ = True
    report = check(arrays, **options)
    if not report.agrees:
        raise AssertionError(str(report))
    return report


def check_module(
    module: Any, *inputs: Any, keywords: Mapping[str, Any] | None = None, **options: Any
) -> Report:
    """Call an attention module of torch and check what it computed, step by step.

    `inputs` and `keywords` are those of its `forward`. Its weights are read by their names (those
    of nn.MultiheadAttention and of Hugging Face's models are known), what its projections give is
    recorded as they give it, and options say what was intended, as for `attnctl.check`; the
    number of heads is the module's own where it says so. Raises AttnError where there is nothing
    to compare.
    """
    keywords = keywords or {}
    of_torch = hasattr(module, "in_proj_weight")
    read = ("query", "key", "value") if of_torch else ("hidden_states",)
    arrays = {**module.state_dict(), **dict(zip(read, inputs, strict=False)), **keywords}
    with record_projections(module) as inside:
        outputs = module(*inputs, **keywords)
    given = in_order(outputs)
    projected = [name for name in inside if (row := row_of(name, ())) and row.ours == (OUTPUT,)]
    named = dict(zip(("attn_output", "attn_weights"), given, strict=False))
    if projected:  # what the module returns may be normed, or have its input added
        del named["attn_output"]
    arrays |= {**inside, **named}
    if getattr(module, "batch_first", True) is False:
        arrays |= batch_first({name: arrays[name] for name in (*read, "attn_output") if name in arrays})
    tensors = {name: array for name, array in arrays.items() if is_tensor(array)}
    return check(tensors, **{**sizes(module), **options})


@contextmanager
def record_projections(module: Any) -> Iterator[dict[str, Any]]:
    """Record the output of each projection inside a module, by its name."""
    outputs: dict[str, Any] = {}

    def hook(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: outputs.update({name: output})

    inside = [(name, part) for name, part in module.named_modules() if name and row_of(name, ())]
    handles = [part.register_forward_hook(hook(name)) for name, part in inside if hasattr(part, "weight")]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def in_order(outputs: Any) -> list[Any]:
    """The tensors of what a module returns."""
    several = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [each for each in several if is_tensor(each)]


def is_tensor(value: Any) -> bool:
    """Tell an array of some kind from a number or an object."""
    return hasattr(value, "shape") and len(value.shape) > 0


def batch_first(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """(token, batch, d_model) -> (batch, token, d_model)."""
    return {
        name: array.swapaxes(0, 1) if len(array.shape) == 3 else array for name, array in arrays.items()
    }


HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads")


def sizes(module: Any) -> dict[str, int]:
    """Read the numbers of heads off a module: an attribute of its own, or of its config."""
    places = (module, getattr(module, "config", None))
    found: dict[str, int] = {}
    for option, names in (("heads", HEADS), ("kv_heads", KV_HEADS)):
        told = (getattr(place, name, None) for place in places for name in names)
        number = next((each for each in told if type(each) is int), None)
        if number is not None:
            found[option] = number
    return found
