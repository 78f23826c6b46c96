"""Published cases, run against a target: ONNX's node tests of Attention, and PyTorch's attention, frozen.

Each is inputs with the outputs that its reference gives; a target that has no keyword for what a case asks
skips it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.judge import Judgement
from attnctl.verbs.conform.layout import make_call, read_output
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import USUAL, TargetProfile
from attnctl.verbs.conform.report import Conformance, Failure, FeatureResult
from attnctl.verbs.conform.suite import CaseResult, Suite

RTOL = {"float64": 1e-10, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""The error allowed, as a part of the result: ONNX's own runner allows 1e-3, and 2⁻⁶ for bfloat16."""

ATOL = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


PublishedCase = tuple[str, Problem, Array]
"""Its name, what is asked, and the output over (batch, head, n, d)."""


def name_group(problem: Problem) -> str:
    grouped = problem.case.heads != problem.case.kv_heads
    return ", ".join([*(["grouped heads"] if grouped else []), *problem.passed]) or "attention"


def run_published(suite: Suite, progress: Callable[[int, int], None]) -> Conformance:
    """Run every case of a published suite. Raises AttnError where that is not installed."""
    asked = suite.request
    cases = list(SUITES[asked.published]())
    runs: dict[tuple[str, str], FeatureResult] = {}
    meant = TargetProfile(layout=suite.declared.layout or USUAL)
    for done, (own, problem, output) in enumerate(cases, start=1):
        key = f"{asked.published}: {name_group(problem)}", problem.case.dtype
        run = runs.setdefault(key, FeatureResult(*key))
        run_one(run, suite, replace(problem, profile=meant), output)
        if run.wrong and run.failure is None:
            words = run.wrong[0].judgement.words
            run.failure = Failure(None, f"the case {own}: {words}", problem.case, words)
        progress(done, len(cases))
    return Conformance(suite.name, tuple(run for run in runs.values() if run.dtype in asked.dtypes))


def run_one(run: FeatureResult, suite: Suite, problem: Problem, output: Array) -> None:
    """Call a target with a case, and add what comes back to the run of its group, or why it is left out."""
    run.of += 1
    case, layout = problem.case, problem.profile.layout
    if lacking := [option for option in problem.passed if option not in suite.signature.keywords]:
        run.refuse(f"it has no {' and no '.join(lacking)}")
        return
    if (layout == "nd" and (case.batch, case.heads) != (1, 1)) or (layout == "hnd" and case.batch != 1):
        run.refuse(f"the layout {layout} has no room for it")
        return
    answer = suite.target.call(make_call(problem, suite.signature))
    if not suite.is_refusal(answer):
        run.add(CaseResult(case, answer, compare_answer(problem, output, answer)))
    else:
        run.refuse(f"{answer.error}: {answer.message}")


def compare_answer(problem: Problem, output: Array, answer: Answer) -> Judgement:
    """Judge an answer by the error that the reference's own tests allow."""
    if answer.error:
        return Judgement(np.inf, words=f"{answer.error}: {answer.message}")
    given = read_output(problem, answer)
    if given is None:
        return Judgement(np.inf, words="it returns no array of the shape of Q with the columns of V")
    room = ATOL[problem.case.dtype] + RTOL[problem.case.dtype] * np.abs(output)
    off = np.abs(given - output) / room
    off = np.where(np.isnan(off), np.where(np.isnan(given) & np.isnan(output), 0.0, np.inf), off)
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    words = f"the output is {given[at] + 0:.6g} at {list(at)} and should be {output[at] + 0:.6g}"
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
    batch, many, queries, d_k = q.shape
    case = Case(arrays["Q"].dtype.name, batch, many, k.shape[1], queries, k.shape[2], d_k, v.shape[3])
    return name, Problem(case, TargetProfile(), {"Q": q, "K": k, "V": v}, passed=options), y


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
