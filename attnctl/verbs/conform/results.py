"""Declared conventions judged; a failing case made small, saved and run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

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
from attnctl.verbs.conform.profile import SAVED
from attnctl.verbs.conform.report import UNASKED, Failure, FeatureResult
from attnctl.verbs.conform.stored import STORED_IN, TYPES
from attnctl.verbs.conform.suite import CaseResult, Suite

UNASKED_WORDS = (
    "it masks causally, and nothing asks for that: say --causal if it is meant; "
    "everything else is judged with this mask"
)


def judge_conventions(suite: Suite, dtype: str, found: Mapping[str, str]) -> list[FeatureResult]:
    """Judge the conventions that are declared by those found, and a mask that nobody asked for."""
    request = suite.request
    is_asked = not request.only or CONVENTIONS in request.only
    declared = {}
    if is_asked:
        declared = {name: value for name, value in request.profile.conventions.items() if name in found}
    is_unasked = suite.profile.always != request.profile.always
    if not declared and not is_unasked:
        return []

    problems = []
    if is_unasked:
        problems.append(UNASKED_WORDS)
    for name, value in declared.items():
        if found[name] != value:
            problems.append(f"{name} is declared {value} and found {found[name]}")

    failure = None
    if problems:
        words = "; ".join(problems)
        mistake = UNASKED if is_unasked else "convention"
        failure = Failure(mistake, words, replace(BASE, dtype=dtype), words=words)
    cases = len(declared) + is_unasked
    return [FeatureResult(CONVENTIONS, dtype, cases, of=cases, failure=failure)]


# --- a failing case, made small, written as a dump and read again ---

SMALLER: tuple[dict[str, Any], ...] = (
    {"memory": "plain"}, {"magnitude": 1.0}, {"batch": 1}, {"heads": 1, "kv_heads": 1},
    {"heads": 2, "kv_heads": 1}, {"queries": 2, "keys": 2}, {"queries": 4, "keys": 4}, {"queries": 1},
    {"keys": 2}, {"d_k": 2, "d_v": 2}, {"d_k": 4, "d_v": 4},
)  # fmt: skip
"""What a case may be made with instead, tried in this order."""


def shrink(first: CaseResult, suite: Suite, explains: Callable[[CaseResult], bool]) -> CaseResult:
    """Find a smaller case that fails as this one does, by the same cause; not of what ends the target."""
    if first.answer.error in ENDINGS:
        return first

    is_gradient = first.judgement.output in GRADIENTS
    best = first
    # Each is made from the best so far: fewer options first, then smaller sizes.
    fewer_options = (best.case.without(name) for name, _ in first.case.options)
    smaller = (replace(best.case, **changes) for changes in SMALLER)
    for case in chain(fewer_options, smaller):
        if case.keys <= case.past:
            continue
        fitted = suite.fit(case)
        is_larger = any(getattr(fitted, size) > getattr(best.case, size) for size in SIZES)
        if fitted == best.case or is_larger:
            continue

        result = suite.run(fitted)
        same_kind = (result.judgement.output in GRADIENTS) == is_gradient
        fails_alike = result.answer.error == first.answer.error and same_kind
        if fails_alike and not result.judgement.right and explains(result):
            best = result
    return best


class Saved(NamedTuple):
    """A case that was saved."""

    case: Case
    feature: str
    called: dict[str, Any]
    """The fields of the profile by which the target was called."""
    dump: Trace


FOLDER = "attnctl-conform"


def save_case(suite: Suite, result: CaseResult, feature: str, failure: Failure) -> Path:
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
    trace, _ = plan_answer(problem, suite.outputs_in(result))
    header = {
        "conform": describe_case(problem, feature, failure),
        "config": make_config(problem, result.case),
    }
    path = folder / f"{slug(suite.target.name)}-{slug(feature)}-{result.case.dtype}.npz"
    with open_output(path) as stream:
        write_npz(Trace(trace.steps, dict(trace), header), stream)
    return path


def describe_case(problem: Problem, feature: str, failure: Failure) -> dict[str, Any]:
    """All that `read_saved` needs to make the call again, and what was said of it."""
    case = problem.case
    profile = problem.profile
    conventions = {"layout": profile.layout, "packed": profile.packed}
    conventions |= {key: profile[name] for key, name in SAVED.items()}

    saved: dict[str, Any] = {"feature": feature, "case": asdict(replace(case, call=None))}
    if case.call:
        saved["call"] = case.call.name
    return saved | {
        "conventions": conventions,
        "always": list_unusual(profile.always),
        "defaults": profile.defaults,
        "handed": profile.handed,
        "stored": profile.stored,
        "said": {"mistake": failure.mistake, "explanation": failure.sentence},
    }


def make_config(problem: Problem, case: Case) -> dict[str, Any]:
    """The attention of a case as a config, so that `attnctl check` reads the dump as well."""
    # The lengths of keys stand under a key of their own.
    rules = [rule.plain() for rule in problem.meant.rules if rule.name != "padding"]
    config = list_unusual(problem.meant)
    config |= {"heads": case.heads, "kv_heads": case.kv_heads, "rules": rules}
    if "key_lengths" in problem.passed:
        config["key_lengths"] = problem.passed["key_lengths"].tolist()
    if "pages" in problem.passed:
        config["page_table"] = problem.passed["pages"].tolist()
    config["causal_offset"] = problem.offset if isinstance(problem.offset, int) else list(problem.offset)
    return config


def read_saved(path: str) -> Saved:
    """The case of a dump that `save_case` wrote. Raises AttnError for what is none."""
    from attnctl.inputs.config.form import validate
    from attnctl.store.source import read_one

    dump = read_one(path)
    header = dump.header.get("conform")
    if not isinstance(header, dict) or not isinstance(header.get("conventions"), dict):
        raise AttnError(f"{path}: no case of attnctl conform; give a file that it saved")

    conventions = header["conventions"]
    unknown = [key for key in conventions if key not in {"layout", "packed", *SAVED}]
    if unknown:
        raise AttnError(f"{path}: conform.conventions: {unknown[0]} is none of {', '.join(SAVED)}")
    always = validate(header.get("always", {}), lambda keys: f"{path}: conform.always{json_path(keys)[1:]}")
    defaults = header.get("defaults") or {}
    if not isinstance(defaults, dict) or not defaults.keys() <= OPTIONS.keys():
        raise AttnError(f"{path}: conform.defaults: expected options with their values")
    handed = header.get("handed") or {}
    if not isinstance(handed, dict) or not {*handed, *map(str, handed.values())} <= TYPES.keys():
        raise AttnError(f"{path}: conform.handed: expected types, like bfloat16: float32")

    stored = header.get("stored") or {}
    if not isinstance(stored, dict) or not {*stored, *map(str, stored.values())} <= {*STORED_IN}:
        raise AttnError(f"{path}: conform.stored: expected types, like bfloat16: float8_e4m3")

    case = Case.of(header.get("case"))
    if case.fill in {CAPTURED, ACTIVATIONS}:  # its numbers are in the dump
        case = replace(case, fill=CAPTURED, call=make_case(dump, str(header.get("call"))).call)
    called = {
        "layout": conventions.get("layout", ""),
        "packed": conventions.get("packed", ""),
        "conventions": {SAVED[key]: conventions[key] for key in SAVED if key in conventions},
        "defaults": {name: to_tuples(value) for name, value in defaults.items()},
        "always": always,
        "handed": handed,
        "stored": stored,
    }
    return Saved(case, str(header.get("feature", "")), called, dump)


def recall_cause(dump: Trace, suite: Suite, wrong: Sequence[CaseResult]) -> Failure | None:
    """Recall the cause that was found when a case was saved, if its outputs are still the same."""
    said = dump.header["conform"].get("said")
    if not wrong or not isinstance(said, dict):
        return None

    expected = suite.expect(wrong[0].case).outputs
    outputs = suite.outputs_in(wrong[0])
    if set(outputs) != set(expected) or not set(outputs) <= set(dump):
        return None
    for name, array in outputs.items():
        before = np.asarray(dump[name], dtype=np.float64)
        if not compare_output(replace(expected[name], value=before), array).right:
            return None
    return Failure(said.get("mistake"), str(said.get("explanation", "")))


def slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text.replace("≠", "not")).strip("-.") or "case"
