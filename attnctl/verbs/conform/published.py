"""Published cases, run against a target: ONNX's node tests of Attention, and PyTorch's attention, frozen.

Each is inputs with the outputs that its reference gives; a target that has no keyword for what a case asks
skips it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.verbs.conform.call import Answer, Target
from attnctl.verbs.conform.case import INPUTS, Case, Problem
from attnctl.verbs.conform.declared import Request
from attnctl.verbs.conform.features import Feature
from attnctl.verbs.conform.judge import Judgement
from attnctl.verbs.conform.layout import make_call, read_output
from attnctl.verbs.conform.profile import USUAL, TargetProfile
from attnctl.verbs.conform.report import FAILED, PASSED, Conformance, Failure
from attnctl.verbs.conform.results import FeatureRun
from attnctl.verbs.conform.signature import CallSignature
from attnctl.verbs.conform.suite import CaseResult, start_target

RTOL = {"float64": 1e-10, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""The error allowed, as a part of the result: ONNX's own runner allows 1e-3, and 2⁻⁶ for bfloat16."""

ATOL = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


@dataclass(frozen=True)
class PublishedCase:
    """Q, K and V over (batch, head, n, d), the options that it asks for, and the output."""

    name: str
    dtype: str
    inputs: Mapping[str, Array]
    options: Mapping[str, Any]
    output: Array

    @property
    def case(self) -> Case:
        q, k, v = (self.inputs[name] for name in INPUTS)
        batch, heads, queries, d_k = q.shape
        return Case(self.dtype, batch, heads, k.shape[1], queries, k.shape[2], d_k, v.shape[3])

    @property
    def group(self) -> str:
        grouped = self.case.heads != self.case.kv_heads
        return ", ".join([*(["grouped heads"] if grouped else []), *self.options]) or "attention"


def run_published(
    target: Target, name: str, request: Request, progress: Callable[[int, int], None]
) -> Conformance:
    """Run every case of a published suite. Raises AttnError where that is not installed."""
    cases = list(SUITES[request.published]())
    runs: dict[tuple[str, str], FeatureRun] = {}
    failures: dict[tuple[str, str], Failure] = {}
    with start_target(target, request) as signature:
        for done, case in enumerate(cases, start=1):
            key = f"{request.published}: {case.group}", case.dtype
            run = runs.setdefault(key, FeatureRun(Feature(key[0]), case.dtype))
            run_one(run, target, signature, case)
            if run.wrong and key not in failures:
                words = run.wrong[0].judgement.words
                failures[key] = Failure(case.case, words, None, f"the case {case.name}: {words}")
            progress(done, len(cases))
    results = [
        run.result(FAILED if run.wrong else PASSED, failures.get(key))
        for key, run in runs.items()
        if run.dtype in request.dtypes
    ]
    return Conformance(name, tuple(results))


def run_one(run: FeatureRun, target: Target, signature: CallSignature, case: PublishedCase) -> None:
    """Call a target with a case, and add what comes back to the run of its group, or why it is left out."""
    run.of += 1
    layout = signature.profile.layout or USUAL
    batch, heads = case.case.batch, case.case.heads
    if lacking := [option for option in case.options if option not in signature.keywords]:
        run.refuse(f"it has no {' and no '.join(lacking)}")
        return
    if (layout == "nd" and (batch, heads) != (1, 1)) or (layout == "hnd" and batch != 1):
        run.refuse(f"the layout {layout} has no room for it")
        return
    profile = TargetProfile(layout=layout)
    problem = Problem(case.case, profile, dict(case.inputs), passed=dict(case.options))
    answer = target.call(make_call(problem, signature))
    if target.refuses.isdisjoint({answer.error, answer.kind}):
        run.add(CaseResult(case.case, answer, compare_answer(case, problem, answer)))
    else:
        run.refuse(f"{answer.error}: {answer.message}")


def compare_answer(case: PublishedCase, problem: Problem, answer: Answer) -> Judgement:
    """Judge an answer by the error that the reference's own tests allow."""
    if answer.error:
        return Judgement(np.inf, words=f"{answer.error}: {answer.message}")
    given = read_output(problem, answer)
    if given is None:
        return Judgement(np.inf, words="it returns no array of the shape of Q with the columns of V")
    room = ATOL[case.dtype] + RTOL[case.dtype] * np.abs(case.output)
    off = np.abs(given - case.output) / room
    off = np.where(np.isnan(off), np.where(np.isnan(given) & np.isnan(case.output), 0.0, np.inf), off)
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    words = f"the output is {given[at] + 0:.6g} at {list(at)} and should be {case.output[at] + 0:.6g}"
    return Judgement(float(off[at]), words=words)


# --- the reader of both suites ---


def read_case(
    name: str, arguments: Mapping[str, Any], arrays: Mapping[str, Array], output: Array
) -> PublishedCase:
    """Read a case under ONNX's names of arguments and arrays; heads may be apart or side by side."""
    heads = arguments.get("q_num_heads"), arguments.get("kv_num_heads")
    given = (*(arrays[each] for each in "QKV"), output)
    q, k, v, y = (
        as_heads(np.asarray(array, dtype=np.float64), count)
        for array, count in zip(given, (*heads, heads[1], heads[0]), strict=True)
    )
    options = read_options(arguments)
    past = 0
    if "past_key" in arrays:
        cache = [np.asarray(arrays[each], dtype=np.float64) for each in ("past_key", "past_value")]
        past = cache[0].shape[2]
        options["cache"] = tuple(cache)
    if "nonpad_kv_seqlen" in arrays:
        options["key_lengths"] = np.asarray(arrays["nonpad_kv_seqlen"])
    if "attn_mask" in arrays:
        options |= read_mask(np.asarray(arrays["attn_mask"]), (*q.shape[:3], k.shape[2] + past))
    return PublishedCase(name, arrays["Q"].dtype.name, {"Q": q, "K": k, "V": v}, options, y)


def read_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"causal": True} if arguments.get("is_causal") else {}
    options |= {name: float(arguments[name]) for name in ("scale", "softcap") if arguments.get(name)}
    left, right = (arguments.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if max(left, right) >= 0:
        options["window"] = tuple(2**30 if side < 0 else int(side) for side in (left, right))
    return options


def read_mask(mask: Array, shape: tuple[int, ...]) -> dict[str, Array]:
    """Give a mask of any shape over (batch, head, query, key); keys past its end are hidden."""
    boolean = mask.dtype == bool
    own = mask if boolean else mask.astype(np.float64)
    if short := shape[-1] - mask.shape[-1]:
        room = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
        own = np.pad(own, room, constant_values=False if boolean else -np.inf)
    return {"mask" if boolean else "float_mask": np.array(np.broadcast_to(own, shape))}


def as_heads(array: Array, heads: int | None) -> Array:
    """(batch, n, heads·d), or with fewer axes than four, as (batch, head, n, d)."""
    if array.ndim == 4 or heads is None:
        return array.reshape((1,) * (4 - array.ndim) + array.shape)
    return rearrange(array, "b n (h d) -> b h n d", h=heads)


IN_TORCH = {"query": "Q", "key": "K", "value": "V"}
"""ONNX's names of the arrays of PyTorch's scaled_dot_product_attention; its other names are ONNX's."""


def read_torch_cases() -> Iterator[PublishedCase]:
    """Read the calls of PyTorch's attention that are shipped. Raises AttnError where they are not there."""
    path = Path(__file__).parent / "sdpa.json"
    if not path.is_file():  # in a checkout it is among the tests
        path = Path(__file__).parents[3] / "tests" / "conformance" / "pytorch" / "sdpa.json"
    if not path.is_file():
        raise AttnError(f"--suite torch: {path} is not there; run it from an installed attnctl")
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        arrays = {name: np.array(value) for name, value in case["inputs"].items()}
        arrays = {IN_TORCH.get(name, name): each for name, each in arrays.items()}
        arrays |= {name: arrays[name].astype(np.float64) for name in "QKV"}
        yield read_case(case["name"], case["arguments"], arrays, np.array(case["outputs"]["output"]))


def read_onnx_cases() -> Iterator[PublishedCase]:
    """Read the Attention cases of the onnx package. Raises AttnError where it is not installed."""
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
        arguments = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        arrays = dict(zip(filter(None, node.input), given, strict=True))
        yield read_case(case.name.removeprefix("test_"), arguments, arrays, outputs[0])


SUITES: dict[str, Callable[[], Iterator[PublishedCase]]] = {
    "onnx": read_onnx_cases,
    "torch": read_torch_cases,
}
