"""The Python API: the same nouns as the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import is_dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from attnctl.array import Array
from attnctl.config.fields import KEYWORDS, laid
from attnctl.config.settings import Settings, dotted
from attnctl.engine.tiles import Progress
from attnctl.errors import raise_all
from attnctl.plan.sentence import prepare as prepare_sentence
from attnctl.trace import Trace
from attnctl.values import BadValueError

if TYPE_CHECKING:
    from attnctl.verbs.check.report import Report
    from attnctl.verbs.diff import Difference


def run(
    sentence: str | None = None,
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Trace:
    """Tokenize, attend, and record every step, or just those to `keep`.

    Options are settings (heads, d_model, seed, …) and rules by the names of their flags (causal,
    window, dilation, …), each as a config has it. Raises AttnError with every problem found.
    """
    return prepare_sentence(chosen(settings, options), sentence).run(keep, progress)


def run_many(
    sentences: Sequence[str],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Trace]:
    """A trace for each sentence, from one padded batch; no sentence means the settings' own."""
    if len(sentences) < 2:
        return [run(sentences[0] if sentences else None, settings, keep=keep, progress=progress, **options)]
    from attnctl.plan.batch import run_batch

    return run_batch(chosen(settings, options), sentences, keep, progress)


def attend(
    arrays: Mapping[str, Array],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Trace:
    """The operator itself on arrays: Q K V, or X and weights, as `operator.prepare` reads them.

    Only the steps to `keep` are held; where none of them is n × n, memory stays bounded. Raises
    AttnError with every array that is missing, not finite or does not fit.
    """
    from attnctl.plan import operator

    header = arrays.header if isinstance(arrays, Trace) else {}
    return operator.prepare(arrays, chosen(settings, options), header).run(keep, progress)


def load(path: str | PathLike[str]) -> Trace:
    """A dump, or anyone's arrays, as a trace. Raises AttnError for what is neither."""
    from attnctl.store import read_one

    return read_one(fspath(path))


def diff(
    a: Trace,
    b: Trace,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    steps: Sequence[str] | None = None,
    by_position: bool = False,
) -> Difference:
    """Compare two traces step by step: where they part, by how much, and why.

    Numbers differ when |a − b| > atol + rtol·|b|; what is None follows from the coarser type of
    the two, as in `torch.testing.assert_close`. `steps` names the ones to compare. Sentences that
    differ are laid side by side by the tokens they share, unless `by_position`. Raises AttnError
    where there is nothing to compare.
    """
    from attnctl.verbs import diff as compare

    tolerance = compare.Tolerance(rtol, atol, equal_nan)
    return compare.diff(a, b, tolerance, steps=steps, by_position=by_position)


def check(
    trace: Trace | Mapping[str, Array],
    settings: Settings | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    decimals: int | None = None,
    **options: Any,
) -> Report:
    """Recompute every step of a trace; name the first wrong one and the mistake that explains it.

    What was intended is what a trace of ours says itself; for anyone else's arrays (under our
    names: Q, K, V, scores, …), and to overrule it, `settings` and options (heads, causal, …) say
    it. Numbers may be as far off as rounding puts them, or as `rtol` and `atol` or a number of
    `decimals` say. Raises AttnError where there is nothing to compare.
    """
    from attnctl.plan.intended import anyones
    from attnctl.verbs.check.check import check as check_steps
    from attnctl.verbs.check.check import configured
    from attnctl.verbs.check.record import Strictness

    trace = trace if isinstance(trace, Trace) else anyones(trace)
    asked = chosen(settings or configured(trace), options) if options else settings
    return check_steps(trace, asked, Strictness(rtol, atol, decimals))


def chosen(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Settings with options laid over them. Raises AttnError with every option that has no meaning."""
    base = settings or Settings()
    given: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in {"dtype": base.dtype, **options}.items():  # NumPy knows types that have no steps
        try:
            given[name] = read_option(name, value)
        except BadValueError as wrong:
            problems += (f"{dotted((name, *path))}: {text}" for path, text in wrong.problems)
    raise_all(problems)
    return laid(base, given)


def read_option(name: str, value: Any) -> Any:
    """A keyword's value: as in a config, or an object that `Settings` holds, which stays as it is."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    if value is None or name not in KEYWORDS or any(map(is_dataclass, parts)):
        return value
    data = as_data(value)
    if name == "positions" and isinstance(data, list):
        data = {"learned": data}
    return KEYWORDS[name].reader(data)


def as_data(value: Any) -> Any:
    """The value as JSON would give it: tuples are lists, and so are arrays."""
    match value:
        case tuple() | list():
            return list(map(as_data, value))
        case Mapping():
            return {name: as_data(each) for name, each in value.items()}
        case str():
            return value
    return value.tolist() if hasattr(value, "tolist") else value
