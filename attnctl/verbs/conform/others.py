"""Cases of others, run against a target: ONNX's node tests of Attention, and PyTorch's attention, frozen.

Each is inputs with the outputs that its reference gives; a target that has no keyword for what a
case asks skips it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.verbs.conform.call import Answer, call_of, output_of
from attnctl.verbs.conform.case import Case, Conventions, Problem
from attnctl.verbs.conform.layout import USUAL
from attnctl.verbs.conform.report import (
    FAILED,
    PASSED,
    SKIPPED,
    Conformance,
    Failure,
    FeatureResult,
    left_out,
)
from attnctl.verbs.conform.signature import Signature
from attnctl.verbs.conform.suite import Asked, start_target
from attnctl.verbs.conform.target import Target

RTOL = {"float64": 1e-10, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""How far off a result may be, as a part of itself: ONNX's own runner allows 1e-3, and 2⁻⁶ for bfloat16."""

ATOL = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Theirs:
    """One case: Q, K and V over (batch, head, n, d), the options that it asks for, and the output."""

    name: str
    dtype: str
    inputs: Mapping[str, Array]
    options: Mapping[str, Any] = field(default_factory=dict)
    output: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def group(self) -> str:
        grouped = self.inputs["Q"].shape[1] != self.inputs["K"].shape[1]
        return ", ".join([*(["grouped heads"] if grouped else []), *self.options]) or "attention"


def run(
    target: Target, name: str, asked: Asked, suite: str, progress: Callable[[int, int], None]
) -> Conformance:
    """Every case of a suite of others. Raises AttnError where it is not installed."""
    cases = list(SUITES[suite]())
    layout = asked.said.layout or USUAL
    with start_target(target, asked) as signature:
        results: dict[tuple[str, str], list[FeatureResult]] = {}
        for done, case in enumerate(cases, start=1):
            found = result_of(target, signature, layout, suite, case)
            results.setdefault((found.feature, found.dtype), []).append(found)
            progress(done, len(cases))
    dtypes = [dtype for dtype in asked.dtypes if any(case.dtype == dtype for case in cases)]
    merged = [together(each) for (_, dtype), each in results.items() if dtype in dtypes]
    return Conformance(name, tuple(merged))


def result_of(target: Target, signature: Signature, layout: str, suite: str, case: Theirs) -> FeatureResult:
    """What becomes of one case."""
    feature = f"{suite}: {case.group}"
    lacking = [option for option in case.options if option not in signature.keywords]
    skipped = FeatureResult(feature, case.dtype, SKIPPED, of=1)
    batch, heads, *_ = case.inputs["Q"].shape
    if lacking:
        return replace(skipped, reason=f"it has no {' and no '.join(lacking)}")
    if (layout == "nd" and (batch, heads) != (1, 1)) or (layout == "hnd" and batch != 1):
        return replace(skipped, reason=f"the layout {layout} has no room for it")
    own = sizes_of(case)
    problem = Problem(own, Conventions(layout=layout), dict(case.inputs), dict(case.options))
    answer = target.call(call_of(problem, signature))
    if not target.refuses.isdisjoint({answer.error, answer.kind}):
        return replace(skipped, reason=f"{answer.error}: {answer.message}")
    ratio, words = compare_answer(case, problem, answer)
    if ratio <= 1:
        return FeatureResult(feature, case.dtype, PASSED, 1, 1, 0, ratio)
    failure = Failure(own, words, None, f"the case {case.name}: {words}")
    return FeatureResult(feature, case.dtype, FAILED, 1, 1, 1, ratio, failure=failure)


def together(results: list[FeatureResult]) -> FeatureResult:
    """The cases of one group in one type: failed where one failed."""
    run = [each for each in results if each.status != SKIPPED]
    left = [each.reason for each in results if each.status == SKIPPED]
    if not run:
        return replace(results[0], of=len(left))
    wrong = [each for each in run if each.status == FAILED]
    ratio = max(each.ratio or 0.0 for each in run)
    first = (wrong or run)[0]
    reason = left_out(len(left), "refused", left[0]) if left else ""
    return replace(first, cases=len(run), of=len(results), failed=len(wrong), ratio=ratio, reason=reason)


def sizes_of(case: Theirs) -> Case:
    q, k, v = (case.inputs[name] for name in "QKV")
    return Case(
        case.dtype, q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    )


def compare_answer(case: Theirs, problem: Problem, answer: Answer) -> tuple[float, str]:
    """How far off an answer is, as a part of what it may be, and that in words."""
    if answer.error:
        return np.inf, f"{answer.error}: {answer.message}"
    given = output_of(problem, answer)
    if given is None:
        return np.inf, "it returns no array of the shape of Q with the columns of V"
    room = ATOL[case.dtype] + RTOL[case.dtype] * np.abs(case.output)
    off = np.abs(given - case.output) / room
    off = np.where(np.isnan(off), np.where(np.isnan(given) & np.isnan(case.output), 0.0, np.inf), off)
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    return float(
        off[at]
    ), f"the output is {given[at]:.6g} at {list(at)} and should be {case.output[at]:.6g}"


# --- PyTorch, frozen ---


def frozen_file() -> Path:
    """PyTorch's cases: in the installed package, or among the tests of a checkout."""
    installed = Path(__file__).parent / "sdpa.json"
    if installed.is_file():
        return installed
    return Path(__file__).parents[3] / "tests" / "conformance" / "pytorch" / "sdpa.json"


def torch_cases() -> Iterator[Theirs]:
    """The calls of scaled_dot_product_attention that attnctl itself is held to."""
    path = frozen_file()
    if not path.is_file():
        raise AttnError(f"--suite torch: {path} is not there; run it from an installed attnctl")
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        inputs = {name: np.array(value) for name, value in case["inputs"].items()}
        output = np.array(case["outputs"]["output"], dtype=np.float64)
        q, k, v = (four(np.asarray(inputs[name], dtype=np.float64)) for name in ("query", "key", "value"))
        options = options_of(case["arguments"].get("is_causal"), case["arguments"].get("scale"))
        if "attn_mask" in inputs:
            options |= mask_of(inputs["attn_mask"], (*q.shape[:3], k.shape[2]))
        yield Theirs(case["name"], "float64", {"Q": q, "K": k, "V": v}, options, four(output))


def four(array: Array) -> Array:
    """With a batch and a head axis."""
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def options_of(causal: Any, scale: Any) -> dict[str, Any]:
    return {**({"causal": True} if causal else {}), **({"scale": float(scale)} if scale else {})}


def mask_of(mask: Array, shape: tuple[int, ...]) -> dict[str, Array]:
    """A mask over (batch, head, query, key), as the option of its kind; keys past its end are hidden."""
    short = shape[-1] - mask.shape[-1]
    boolean = mask.dtype == bool
    if short:
        room = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
        mask = np.pad(mask, room, constant_values=False if boolean else -np.inf)
    whole = np.array(np.broadcast_to(mask, shape))
    return {"mask": whole} if boolean else {"float_mask": whole.astype(np.float64)}


# --- ONNX ---


def onnx_cases() -> Iterator[Theirs]:
    """The Attention cases of the onnx package. Raises AttnError where it is not installed."""
    try:
        import_module("onnx.backend.test.case.node.attention")
    except ImportError:
        raise AttnError("--suite onnx: it needs onnx, and its NumPy cases; pip install onnx") from None
    helper = import_module("onnx").helper
    for case in import_module("onnx.backend.test.case.node")._NodeTestCases:  # noqa: SLF001  (its only list)
        node = case.model.graph.node[0] if case.model is not None else None
        if node is None or node.op_type != "Attention":
            continue
        ((given, outputs),) = case.data_sets
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        inputs = dict(zip(filter(None, node.input), given, strict=True))
        yield onnx_case(case.name.removeprefix("test_"), attributes, inputs, outputs[0])


def onnx_case(
    name: str, attributes: Mapping[str, Any], arrays: Mapping[str, Array], output: Array
) -> Theirs:
    """One node as a case of ours."""
    dtype = arrays["Q"].dtype.name
    heads = attributes.get("q_num_heads"), attributes.get("kv_num_heads")
    q, k, v, y = (
        by_head(np.asarray(array, dtype=np.float64), count)
        for array, count in zip(
            (*(arrays[each] for each in "QKV"), output), (*heads, heads[1], heads[0]), strict=True
        )
    )
    options = options_of(attributes.get("is_causal"), attributes.get("scale"))
    if attributes.get("softcap"):
        options["softcap"] = float(attributes["softcap"])
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if max(left, right) >= 0:
        options["window"] = tuple(2**30 if side < 0 else int(side) for side in (left, right))
    past = 0
    if "past_key" in arrays:
        cache = [np.asarray(arrays[each], dtype=np.float64) for each in ("past_key", "past_value")]
        past = cache[0].shape[2]
        options["cache"] = tuple(cache)
    if "nonpad_kv_seqlen" in arrays:
        options["key_lengths"] = np.asarray(arrays["nonpad_kv_seqlen"])
    if "attn_mask" in arrays:
        mask = np.asarray(arrays["attn_mask"])
        options |= mask_of(mask if mask.dtype == bool else mask.astype(np.float64),
                           (q.shape[0], q.shape[1], q.shape[2], k.shape[2] + past))  # fmt: skip
    return Theirs(name, dtype, {"Q": q, "K": k, "V": v}, options, y)


def by_head(array: Array, heads: int | None) -> Array:
    """Heads that stand side by side, apart."""
    if array.ndim == 4 or heads is None:
        return array
    batch, n, width = array.shape
    return array.reshape(batch, n, heads, width // heads).swapaxes(1, 2)


SUITES: dict[str, Callable[[], Iterator[Theirs]]] = {"onnx": onnx_cases, "torch": torch_cases}
"""The suites by name."""
