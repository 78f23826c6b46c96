"""Declared conventions judged; a failing case made small, saved and run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.values import json_path, to_tuples
from attnctl.record import Trace
from attnctl.verbs.conform.call import ENDINGS
from attnctl.verbs.conform.case import ACTIVATIONS, CAPTURED, GRADIENTS, Case
from attnctl.verbs.conform.declared import list_unusual
from attnctl.verbs.conform.diagnosis import plan_answer
from attnctl.verbs.conform.features import BASE, CONVENTIONS, SIZES, make_case
from attnctl.verbs.conform.judge import compare_output
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import SAVED, TYPES
from attnctl.verbs.conform.report import UNASKED, Failure, FeatureResult
from attnctl.verbs.conform.suite import CaseResult, Suite

UNASKED_WORDS = (
    "it masks causally, and nothing asks for that: say --causal if it is meant; "
    "everything else is judged with this mask"
)


def judge_conventions(suite: Suite, dtype: str, found: Mapping[str, str]) -> list[FeatureResult]:
    """Judge the conventions that are declared by those found, and a mask that nobody asked for."""
    request = suite.request
    judged = found if not request.only or CONVENTIONS in request.only else {}
    declared = {name: value for name, value in request.profile.conventions.items() if name in judged}
    other = [name for name in declared if found[name] != declared[name]]
    wrong = [f"{name} is declared {declared[name]} and found {found[name]}" for name in other]
    unasked = suite.profile.always != request.profile.always
    if not (declared or unasked):
        return []
    words = "; ".join([*[UNASKED_WORDS] * unasked, *wrong])
    mistake = UNASKED if unasked else "convention"
    failure = Failure(mistake, words, replace(BASE, dtype=dtype), words) if words else None
    cases = len(declared) + unasked
    return [FeatureResult(CONVENTIONS, dtype, cases, cases, failure=failure)]


# --- a failing case, made small, written as a dump and read again ---

SMALLER: tuple[dict[str, Any], ...] = (
    {"memory": "plain"}, {"magnitude": 1.0}, {"batch": 1}, {"heads": 1, "kv_heads": 1},
    {"heads": 2, "kv_heads": 1}, {"queries": 2, "keys": 2}, {"queries": 4, "keys": 4}, {"queries": 1},
    {"keys": 2}, {"d_k": 2, "d_v": 2}, {"d_k": 4, "d_v": 4},
)  # fmt: skip
"""What a case may be made with instead, tried in this order."""


def shrink(first: CaseResult, suite: Suite, explains: Callable[[CaseResult], bool]) -> CaseResult:
    """Find a smaller case that fails as this one does, by the same cause; not of what ends the target."""
    best = first
    fewer = (best.case.without(name) for name, _ in first.case.options)
    smaller = (replace(best.case, **less) for less in SMALLER)
    for case in chain(fewer, smaller) if first.answer.error not in ENDINGS else ():
        if case.keys <= case.past:
            continue
        fit = suite.fit(case)
        if fit == best.case or any(getattr(fit, size) > getattr(best.case, size) for size in SIZES):
            continue
        found = suite.run(fit)
        of_gradients = [result.judgement.output in GRADIENTS for result in (found, first)]
        alike = found.answer.error == first.answer.error and len({*of_gradients}) == 1
        if alike and not found.judgement.right and explains(found):
            best = found
    return best


Saved = tuple[Case, str, dict[str, Any], Trace]
"""A case, its feature, the fields of the profile by which the target was called, and its dump."""

FOLDER = "attnctl-conform"


def save_case(suite: Suite, result: CaseResult, feature: str, said: Failure) -> Path:
    """Write what a case was given, and its answer. Raises AttnError where the folder cannot be written."""
    from attnctl.store.files import open_output
    from attnctl.store.npz import write_npz

    assert suite.request.save is not None
    folder = Path(suite.request.save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttnError(f"{folder}: {error.strerror}; give another folder with --save") from None
    problem = suite.problem(result.case)
    profile = problem.profile
    trace, _ = plan_answer(problem, suite.outputs_in(result))
    conventions = {"layout": profile.layout, "packed": profile.packed}
    header = {
        "conform": {
            "feature": feature,
            "case": asdict(replace(problem.case, call=None)),
            **({"call": problem.case.call.name} if problem.case.call else {}),
            "conventions": conventions | {key: profile[name] for key, name in SAVED.items()},
            "always": list_unusual(profile.always),
            "defaults": profile.defaults,
            "handed": profile.handed,
            "said": {"mistake": said.mistake, "explanation": said.sentence},
        },
        "config": make_config(problem, result.case),
    }
    path = folder / f"{slug(suite.target.name)}-{slug(feature)}-{result.case.dtype}.npz"
    with open_output(path) as stream:
        write_npz(Trace(trace.steps, dict(trace), header), stream)
    return path


def make_config(problem: Problem, case: Case) -> dict[str, Any]:
    rules = [rule.plain() for rule in problem.meant.rules if rule.name != "padding"]
    config = list_unusual(problem.meant) | {"heads": case.heads, "kv_heads": case.kv_heads, "rules": rules}
    if "key_lengths" in problem.passed:
        config["key_lengths"] = problem.passed["key_lengths"].tolist()
    if "pages" in problem.passed:
        config["page_table"] = problem.passed["pages"].tolist()
    offset = problem.offset if isinstance(problem.offset, int) else list(problem.offset)
    return config | {"causal_offset": offset}


def read_saved(path: str) -> Saved:
    """The case of a dump that `save_case` wrote. Raises AttnError for what is none."""
    from attnctl.inputs.config.form import validate
    from attnctl.store.source import read_one

    dump = read_one(path)
    header = dump.header.get("conform")
    if not isinstance(header, dict) or not isinstance(header.get("conventions"), dict):
        raise AttnError(f"{path}: no case of attnctl conform; give a file that it saved")
    said = header["conventions"]
    if unknown := [key for key in said if key not in {"layout", "packed", *SAVED}]:
        raise AttnError(f"{path}: conform.conventions: {unknown[0]} is none of {', '.join(SAVED)}")
    always = validate(header.get("always", {}), lambda at: f"{path}: conform.always{json_path(at)[1:]}")
    defaults, handed = header.get("defaults") or {}, header.get("handed") or {}
    if not isinstance(defaults, dict) or not defaults.keys() <= OPTIONS.keys():
        raise AttnError(f"{path}: conform.defaults: expected options with their values")
    if not isinstance(handed, dict) or not {*handed, *map(str, handed.values())} <= TYPES.keys():
        raise AttnError(f"{path}: conform.handed: expected types, like bfloat16: float32")
    called = {
        "layout": said.get("layout", ""),
        "packed": said.get("packed", ""),
        "conventions": {SAVED[key]: said[key] for key in SAVED if key in said},
        "defaults": {name: to_tuples(value) for name, value in defaults.items()},
        "always": always,
        "handed": handed,
    }
    case = Case.of(header.get("case"))
    if case.fill in {CAPTURED, ACTIVATIONS}:  # its numbers are in the dump
        case = replace(case, fill=CAPTURED, call=make_case(dump, str(header.get("call"))).call)
    return case, str(header.get("feature", "")), called, dump


def recall_cause(dump: Trace, suite: Suite, wrong: Sequence[CaseResult]) -> Failure | None:
    """Recall the cause that was found when a case was saved, if its outputs are still the same."""
    said = dump.header["conform"].get("said")
    if not wrong or not isinstance(said, dict):
        return None
    wanted, now = suite.expect(wrong[0].case).outputs, suite.outputs_in(wrong[0])
    if set(now) != set(wanted) or not set(now) <= set(dump):
        return None
    before = {name: np.asarray(dump[name], dtype=np.float64) for name in now}
    if not all(compare_output(replace(wanted[name], value=before[name]), now[name]).right for name in now):
        return None
    return Failure(said.get("mistake"), str(said.get("explanation", "")))


def slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text.replace("≠", "not")).strip("-.") or "case"
