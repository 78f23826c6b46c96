"""A failing case as a dump, and the command that runs it again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.trace import Trace
from attnctl.base.values import json_path
from attnctl.drawing.screen.text import shell_line
from attnctl.inputs.config.settings import Settings
from attnctl.math.names import HEAD_OUTPUTS
from attnctl.verbs.conform.case import Case, Conventions, Problem
from attnctl.verbs.conform.declared import unusual
from attnctl.verbs.conform.diagnosis import Diagnosis, intent_of
from attnctl.verbs.conform.judge import compare_output

if TYPE_CHECKING:
    from attnctl.verbs.conform.suite import Outcome, Suite

Saved = tuple[Case, str, Conventions, Settings]
"""A case, its feature, what the target does where programs differ, and the attention that is always on."""

FOLDER = "attnctl-conform"
"""Where failing cases are saved."""


def save(suite: Suite, outcome: Outcome, feature: str, target: str, said: Diagnosis) -> Path:
    """Write what a case was given and what came back; the file holds what `replay_case` needs.

    Raises AttnError where the folder cannot be written.
    """
    from attnctl.store.files import open_output
    from attnctl.store.npz import write_npz

    assert suite.asked.save is not None
    folder = Path(suite.asked.save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttnError(f"{folder}: {error.strerror}; give another folder with --save") from None
    problem = suite.problem(outcome.case)
    found = None if outcome.answer.error else suite.output_of(outcome)
    intent = intent_of(problem, {} if found is None else {HEAD_OUTPUTS: np.asarray(found)})
    header = {
        "conform": told(problem, feature) | {"said": asdict(said)},
        "config": config_of(suite, outcome),
    }
    path = folder / f"{slug(target)}-{slug(feature)}-{outcome.case.dtype}.npz"
    with open_output(path) as stream:
        write_npz(Trace(intent.trace.steps, dict(intent.trace), header), stream)
    return path


def told(problem: Problem, feature: str) -> dict[str, Any]:
    return {
        "feature": feature,
        "case": problem.case.to_dict(),
        "conventions": asdict(problem.conventions),
        "always": unusual(problem.always),
    }


def config_of(suite: Suite, outcome: Outcome) -> dict[str, Any]:
    """What was meant, as `attnctl check` reads it of a dump."""
    problem = suite.problem(outcome.case)
    case = outcome.case
    rules = [rule.plain() for rule in problem.rules if rule.name != "padding"]
    config = unusual(problem.meant) | {"heads": case.heads, "kv_heads": case.kv_heads, "rules": rules}
    if "key_lengths" in problem.passed:
        config["key_lengths"] = problem.passed["key_lengths"].tolist()
    offset = problem.offset if isinstance(problem.offset, int) else list(problem.offset)
    return config | {"causal_offset": offset}


def replay_case(path: str) -> Saved:
    """The case of a dump that `save` wrote. Raises AttnError for what is none."""
    from attnctl.inputs.config.schema import validate
    from attnctl.store import read_one

    header = read_one(path).header.get("conform")
    if not isinstance(header, dict) or not isinstance(header.get("conventions"), dict):
        raise AttnError(f"{path}: no case of attnctl conform; give a file that it saved")
    try:
        conventions = Conventions(**header["conventions"])
    except TypeError as error:
        raise AttnError(f"{path}: conform.conventions: {error}") from None
    always = validate(
        header.get("always", {}), lambda place: f"{path}: conform.always{json_path(place)[1:]}"
    )
    return Case.of(header.get("case")), str(header.get("feature", "")), conventions, always


def said_before(path: str, suite: Suite, wrong: Sequence[Outcome]) -> Diagnosis | None:
    """What was said of a case when it was saved, if the output is still the one that was found then."""
    from attnctl.store import read_one

    dump = read_one(path)
    said = dump.header["conform"].get("said")
    if not wrong or not isinstance(said, dict) or HEAD_OUTPUTS not in dump:
        return None
    wanted = replace(suite.wanted(wrong[0].case), output=np.asarray(dump[HEAD_OUTPUTS], dtype=np.float64))
    now = suite.output_of(wrong[0])
    if now is None or now.shape != wanted.output.shape or not compare_output(wanted, now).ratio <= 1:
        return None
    return Diagnosis(said.get("mistake"), str(said.get("explanation", "")))


def command(called: tuple[Sequence[str], Sequence[str]], path: Path) -> str:
    """The line that runs the case of a file again; `called` is how the target was named."""
    before, after = called
    return shell_line(["attnctl", "conform", *before, "--replay", str(path), *after])


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    text = text.replace("≠", "not")
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "case"
