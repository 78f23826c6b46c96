"""Other readings of a dump that disagrees: other layouts or names of its arrays, or one option more.

They are tried before any mistake is looked for, each up to the step that was wrong first: a
program is not accused of what is only written down in another way. Where it is wrong in every
reading, its arrays go by the names that are nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, is_dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.evidence.walk import Verdict, Walk
from attnctl.inputs.arrays.counted import count_positions
from attnctl.inputs.arrays.foreign import MATRIX
from attnctl.inputs.config.fields import ALIBI, IN_PARTS
from attnctl.inputs.config.flags import changes_of, flags_of, rule_value
from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.config.sizes import THREE
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import Derivation, Rotary
from attnctl.math.kind import NORMS, HeadNorm
from attnctl.math.names import (
    BIASED,
    CHUNK_LOGSUMEXP,
    CHUNK_OUTPUTS,
    CHUNK_SHARES,
    CONCAT,
    HEAD_OUTPUTS,
    MASK,
    MASKED,
    NORM_WEIGHTS,
    OUTPUT,
    PAST_KEY,
    POSITION_IDS,
    PROJECTED,
    SINK,
    TABLE,
    W_O,
    WEIGHTS,
    X,
    gradient_of,
    matrix_of,
    where,
)
from attnctl.math.ops import Unstated
from attnctl.math.rules import Alibi, Causal, VisibilityRule
from attnctl.record import CALL, LAID_OUT, Trace
from attnctl.store.header import foreign_step

MOST_HEADS = 128

HOW_READ = {"layout", "lse_base", "lse_empty", "dtype", "heads", "kv_heads", "positions_from_mask"}
"""Options that say how arrays are to be read: without them others are read."""

SCORES = tuple(where(lambda row: row.symbol == "S"))
"""What people call scores, from Q Kᵀ to what softmax is taken of."""

OF_VECTORS = {("head", token, d) for token in ("query", "key") for d in ("d_k", "d_v")}
VECTORS = tuple(where(lambda row: row.axes in OF_VECTORS and not row.gradient))
"""What has a vector for each head and token."""

HIDE = {BIASED, MASKED}
"""The scores among which there may be −∞."""

OTHER_NAMES = {
    "scores": SCORES[1:],
    WEIGHTS: SCORES[1:],
    OUTPUT: (CONCAT, HEAD_OUTPUTS),
    HEAD_OUTPUTS: (CONCAT,),
    "Q": ("Q_rotated",),
    "K": ("K_rotated",),
}
"""What an array that someone else named may be as well."""


Unasked = tuple[str, str, str]
"""An option, the mistake that leaving it out would be, and, where the catalogue has no such mistake, what
completes "It is what you get when …"."""


@dataclass(frozen=True)
class Reading:
    """A trace and settings to try instead: read `words`, or with the options that were `unasked`."""

    trace: Trace
    settings: Settings | None
    words: str = ""
    unasked: tuple[Unasked, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    """Arrays that go by another name here -> that name."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Steps that nothing asks for, and the others do not need -> the option that would ask for them."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """The same of steps that what follows was judged by."""
    shown: tuple[str, ...] = ()
    """Masked scores that nothing asks for, judged where they are not hidden."""
    presumed: tuple[str, ...] = ()
    """Options that were not given, and that the arrays show."""
    doubtful: frozenset[str] = frozenset()
    """Those of `left_out` from which nothing that was judged follows."""
    unmeant: str = ""
    """An option that was given, without which everything agrees."""


Look = Callable[[Reading, str | None], Walk | None]
"""Walks a reading, all of it or until one step; None where its arrays do not go together."""


def is_foreign(trace: Trace) -> bool:
    """True of arrays of which nothing says how they are laid out; a captured call of a library does."""
    stated = CALL in trace.header and not trace.is_own_call
    return not stated and all(isinstance(step.op, Unstated) for step in trace.steps.values())


def agreeing(first: Reading, walk: Walk, look: Look) -> tuple[Reading, Walk] | None:
    """The first reading in which nothing is wrong, and all that was wrong or could not be judged agrees."""
    settings = first.settings or Settings()
    sizes = walk.record.plan.sizes
    # The likeliest first: layouts before options that nobody gave.
    others = chain(
        with_layout_said(first),
        counted_over_mask(first),
        in_sections(first),
        layouts(first, sizes),
        reading_as_sink(first, sizes),
        with_norms_read(first, settings),
        with_options(first, settings, sizes),
    )
    for base in chain((first,), others if walk.wrong else ()):
        plain = walk if base is first else look(base, walk.wrong[0])
        if not plain:
            continue
        for reading in by_names(base, plain.derivation):
            if reading is first or (reading is base and plain.wrong):
                continue
            whole = walk_if_better(reading, walk, look)
            if whole and not whole.wrong and mends(walk, whole, reading):
                return reading, whole
    return None


def walk_if_better(reading: Reading, walk: Walk, look: Look) -> Walk | None:
    """The walk of a reading: only as far as shows that it is no better, where it is not."""
    if not walk.wrong:
        return look(reading, None)
    first_wrong = reading.named.get(walk.wrong[0], walk.wrong[0])
    until = max((first_wrong, *reading.named.values()), key=list(TABLE).index)
    beginning = look(reading, until)
    if beginning and not beginning.wrong:
        return look(reading, None)
    return beginning


def nearest_reading(first: Reading, walk: Walk, look: Look) -> tuple[Reading, Walk]:
    """The arrays by the names that are nearest to what they hold, where they are wrong by all of them."""
    candidates = []
    for reading in by_names(first, walk.derivation):
        walked = walk if reading is first else look(reading, None)
        if walked:
            candidates.append((reading, walked))
    return min(candidates, key=lambda pair: distance(pair[0], first.trace, pair[1]))


def mends(walk: Walk, whole: Walk, reading: Reading) -> bool:
    """True if what was wrong agrees in a reading.

    A step may go by another name there. With more heads, weights averaged over them are left out.
    """
    if not any(step.verdict is Verdict.AGREES for step in whole.steps.values()):
        return False
    if reading.unasked:
        verdicts = {whole.steps[name].verdict for name in walk.wrong if name in whole.steps}
        return verdicts <= {Verdict.AGREES, Verdict.NOT_RECORDED}

    before = count_judged(walk)
    after = count_judged(whole)
    return after >= before if walk.wrong else after > before


def count_judged(walk: Walk) -> int:
    """How many steps were judged, those of few digits among them."""
    judged = {Verdict.AGREES, Verdict.WRONG, Verdict.CANNOT_TELL}
    return sum(step.verdict in judged for step in walk.steps.values())


# --- names ---


def by_names(reading: Reading, derivation: Derivation) -> Iterator[Reading]:
    """A reading, and then the same with its arrays under the other names that they may go by."""
    yield reading
    trace = reading.trace
    theirs_of = trace.header.get("read", {})
    names_of = {}
    for ours, others in OTHER_NAMES.items():
        if ours in trace and (ours in theirs_of or ours == "scores"):
            free = [name for name in others if name in derivation and name not in trace]
            names_of[ours] = [ours, *free]

    namings = []
    for names in product(*names_of.values()):
        named = {ours: name for ours, name in zip(names_of, names, strict=True) if ours != name}
        if named and len(set(names)) == len(names):
            namings.append(named)
    for named in sorted(namings, key=lambda naming: misnames(trace, naming)):
        words = [reading.words] if reading.words else []
        words += [f"{theirs_of.get(ours, ours)} as {name}" for ours, name in named.items()]
        yield replace(reading, trace=rename_array(trace, named), words=", ".join(words), named=named)


def misnames(trace: Trace, named: Mapping[str, str]) -> int:
    """Count the arrays that hold −∞ and go by the name of scores that never do."""
    plain = set(SCORES) - HIDE
    return sum(named.get(name, name) in plain and bool(np.isneginf(trace[name]).any()) for name in trace)


CLEARLY = 0.5
"""The part of the largest difference that another name may leave to be nearer for that alone."""


def distance(reading: Reading, trace: Trace, walk: Walk) -> tuple[float, ...]:
    """How far arrays are from what they are called: how many are wrong, in how many numbers, how far."""
    names = [reading.named.get(name, name) for name in OTHER_NAMES if name in trace]
    gaps = [walk.steps[name].gap for name in names if name in walk.steps]
    unjudged = gaps.count(None)
    differing = sum(gap.differing for gap in gaps if gap)
    largest = sum(gap.largest for gap in gaps if gap)
    if reading.named:
        largest = largest / CLEARLY
    return len(walk.wrong) + unjudged, misnames(trace, reading.named), differing, largest


def rename_array(trace: Trace, named: Mapping[str, str]) -> Trace:
    """The trace with arrays, and the gradients by them, under other names, in the order of the table."""
    named = {**named, **{gradient_of(name): gradient_of(other) for name, other in named.items()}}
    arrays = {named.get(name, name): trace[name] for name in trace}
    known = [name for name in TABLE if name in arrays]
    others = [name for name in arrays if name not in TABLE]
    steps = {name: foreign_step(name, arrays[name]) for name in (*known, *others)}
    return Trace(steps, arrays, trace.header)


# --- layouts ---


def with_layout_said(first: Reading) -> Iterator[Reading]:
    """Q, K and V of three axes as (head, n, d), where nobody says that these are the axes of a batch."""
    settings = first.settings or Settings()
    is_said = X in first.trace or settings.layout is not None or settings.heads is not None
    dimensions = {first.trace[name].ndim for name in PROJECTED if name in first.trace}
    if dimensions == {3} and not is_said:
        yield replace(first, settings=settings.with_(layout="hnd"), words="Q, K and V as (head, n, d)")


def layouts(first: Reading, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """The same with some arrays laid out otherwise."""
    trace = first.trace
    ways = chain(
        as_linear(trace),
        tokens_before_heads(first),
        packed_otherwise(trace, sizes),
        splits_otherwise(trace),
    )
    for changed, words in ways:
        yield replace(first, trace=replace(trace, arrays={**trace, **changed}), words=words)


def as_linear(trace: Trace) -> Iterator[tuple[dict[str, Array], str]]:
    """Square matrices as nn.Linear keeps them: those of Q, K and V, with or without W_O."""
    if LAID_OUT in trace.header:
        return
    projections = [matrix_of(symbol) for symbol in PROJECTED]
    theirs_of = trace.header.get("read", {})
    theirs = [theirs_of[name] for name in (" ".join(projections), *projections) if name in theirs_of]
    if not all(map(MATRIX.fullmatch, theirs)):
        return  # their names tell

    for names in (projections, [*projections, W_O]):
        shapes = [trace[name].shape if name in trace else () for name in names]
        are_square = all(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)
        if are_square:
            yield {name: trace[name].T for name in names}, f"{' '.join(names)} as (out, in)"


def tokens_before_heads(first: Reading) -> Iterator[tuple[dict[str, Array], str]]:
    """Vectors as (token, head, d), where nobody says and nothing tells which axis is that of the heads.

    Beside scores those whose heads are not as many as their tokens are told by their sizes.
    """
    trace = first.trace
    names = arrays_by_head(trace)
    scores = [name for name in TABLE if TABLE[name].of_scores and not TABLE[name].broadcasts]
    if any(name in trace for name in scores):
        names = tuple(name for name in names if is_square(trace, [name]))
    if not names or is_layout_said(first):
        return

    # The output may have heads before tokens all the same.
    but_output = tuple(name for name in names if name != OUTPUT)
    for turned in dict.fromkeys((names, but_output)):
        changed = {name: trace[name].swapaxes(-3, -2) for name in turned}
        yield changed, f"{' '.join(turned)} as (token, head, d_k)"


def arrays_by_head(trace: Trace) -> tuple[str, ...]:
    """The vectors of a trace that have an axis of heads."""
    most = max((trace[name].ndim for name in PROJECTED if name in trace), default=0)
    may_have_heads = (*VECTORS, *map(gradient_of, VECTORS), OUTPUT, gradient_of(OUTPUT))
    return tuple(name for name in may_have_heads if name in trace and trace[name].ndim == max(most, 3))


def is_square(trace: Trace, names: Sequence[str]) -> bool:
    """True where the sizes of arrays do not tell heads from tokens."""
    return all(trace[name].shape[-3] == trace[name].shape[-2] for name in names)


def is_layout_said(reading: Reading) -> bool:
    return reading.settings is not None and reading.settings.layout is not None


def ambiguous(reading: Reading) -> str:
    names = arrays_by_head(reading.trace)
    if not names or is_layout_said(reading) or not is_square(reading.trace, names):
        return ""
    count = reading.trace[names[0]].shape[-2]
    return (
        f"{count} heads of {count} tokens: sizes do not tell which axis of {', '.join(names)} is which; "
        "say --layout bhnd or bnhd"
    )


def splits_otherwise(trace: Trace) -> Iterator[tuple[dict[str, Array], str]]:
    """Steps of chunks with axes exchanged that are of one size."""
    names = [name for name in (CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, CHUNK_SHARES) if name in trace]
    axes_of = {name: ("batch", *TABLE[name].axes)[-trace[name].ndim :] for name in names}
    for one, other in combinations(("batch", "chunk", "head", "query"), 2):
        changed = {}
        for name, axes in axes_of.items():
            if one in axes and other in axes:
                changed[name] = trace[name].swapaxes(axes.index(one), axes.index(other))

        keeps_shapes = all(array.shape == trace[name].shape for name, array in changed.items())
        if changed and keeps_shapes:
            yield changed, f"{' '.join(changed)} with {one} and {other} the other way round"


def packed_otherwise(trace: Trace, sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, Array], str]]:
    """A packed matrix split head by head where it was split in thirds, and the other way round."""
    heads = sizes.get("head", 1)
    theirs_of = trace.header.get("read", {})
    packed = [names.split() for names in theirs_of if names.startswith(("W_Q W_K", "b_Q b_K"))]
    if heads == 1 or not packed:
        return

    theirs = theirs_of[" ".join(packed[0])]
    was_by_head = "query_key_value" in theirs
    changed: dict[str, Array] = {}
    for names in packed:
        parts = np.stack([trace[name] for name in names])
        if was_by_head:
            whole = rearrange(parts, "part ... (head d) -> ... (head part d)", head=heads)
            parts = rearrange(whole, "... (part column) -> part ... column", part=3)
        else:
            whole = rearrange(parts, "part ... column -> ... (part column)")
            parts = rearrange(whole, "... (head part d) -> part ... (head d)", head=heads, part=3)
        changed |= dict(zip(names, parts, strict=True))
    yield changed, f"{theirs} as {'Q, K, V in thirds' if was_by_head else 'Q, K, V by head'}"


# --- sinks and norms ---


def reading_as_sink(first: Reading, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """An array that nobody knows and that has a number for each head, as their sinks."""
    if SINK in first.trace:
        return
    for name in first.trace:
        if name not in TABLE and first.trace[name].size == sizes.get("head"):
            yield replace(first, trace=rename_array(first.trace, {name: SINK}), words=f"{name} as {SINK}")


EPS = (None, 1e-6, 1e-5, 2.0**-23)
"""What a norm adds below its root: as is usual for its kind, or for the other; float32's unit (torch)."""


def head_norms(settings: Settings, *eps: float | None) -> Iterator[HeadNorm]:
    """Norms of Q and K: before the rotation, and after it where there is one."""
    if settings.qk_norm is None:
        turns = (False, True) if isinstance(settings.positions, Rotary) else (False,)
        for added, after, kind in product(eps, turns, NORMS):
            yield HeadNorm(kind, added, after_rotation=after)


def with_norms_read(first: Reading, settings: Settings) -> Iterator[Reading]:
    """Weights of norms that the arrays hold, by each kind of norm."""
    names = [name for name in NORM_WEIGHTS if name in first.trace]
    if not names:
        return
    for kind, plus_one in product(head_norms(settings, *EPS), (False, True)):
        norm = replace(kind, plus_one=plus_one)
        words = f"{' and '.join(names)} by {' '.join(flags_of('qk_norm', norm))}"
        yield replace(first, settings=settings.with_(qk_norm=norm), words=words)


# --- positions ---


def counted_over_mask(first: Reading) -> Iterator[Reading]:
    """Positions counted over the keys that the mask shows, where it hides the first: left padding.

    Where they are to be counted, tokens of padding may be at 1, as in Hugging Face's models, or at 0.
    """
    trace = first.trace
    settings = first.settings or Settings()
    if MASK not in trace or POSITION_IDS in trace or not isinstance(settings.positions, Rotary):
        return
    mask = np.asarray(trace[MASK])
    queries = trace["Q"].shape[-2] if "Q" in trace else 0
    if settings.positions_from_mask:
        real = np.atleast_2d(mask).astype(bool)
        if mask.dtype.kind in "bui" and mask.ndim == 2 and real.shape[-1] == queries:
            places = np.where(real, count_positions(real, queries), 1)
            counted = replace(settings, positions_from_mask=None)
            yield replace(
                with_places(first, places), settings=counted, words="tokens of padding at position 1"
            )
        return
    if mask.dtype.kind not in "bui" or mask.ndim > 2:
        return

    is_token = np.asarray(np.atleast_2d(mask).astype(bool).any(axis=0))
    has_left_padding = is_token.any() and not is_token[:1].any()
    if not has_left_padding or not 0 < queries <= len(is_token):
        return
    places = count_positions(is_token[None], queries)[0]
    yield replace(with_places(first, places), words="positions as counted over the keys that mask shows")


def in_sections(first: Reading) -> Iterator[Reading]:
    """Positions of time, height and width by chunks of columns, where nobody says how pairs go by them."""
    settings = first.settings or Settings()
    rotation = settings.positions
    if POSITION_IDS not in first.trace or not isinstance(rotation, Rotary) or rotation.sections:
        return
    columns = rotation.dims or (first.trace["Q"].shape[-1] if "Q" in first.trace else 0)
    pairs = columns // 2
    has_three_rows = len(first.trace[POSITION_IDS]) == THREE and first.trace[POSITION_IDS].ndim > 1
    if not has_three_rows or pairs % PARTS_OF_SECTIONS:
        return

    part = pairs // PARTS_OF_SECTIONS
    sections = (2 * part, 3 * part, 3 * part)
    words = f"sections of {sections[0]}, {sections[1]} and {sections[2]} pairs, one behind the other"
    positions = replace(rotation, sections=sections)
    yield replace(first, settings=settings.with_(positions=positions), words=words)


PARTS_OF_SECTIONS = 8
"""Qwen2-VL's sections are 2, 3 and 3 of so many parts."""


def with_places(first: Reading, places: Array) -> Reading:
    trace = first.trace
    steps = {**trace.steps, POSITION_IDS: foreign_step(POSITION_IDS, places)}
    return replace(first, trace=Trace(steps, {**trace, POSITION_IDS: places}, trace.header))


# --- options ---


def without_options(first: Reading) -> Iterator[Reading]:
    """The same without one of the options that were given, and without any of them."""
    given = first.settings or Settings()
    usual = Settings()
    bare, all_said = given, []
    for keyword, value, words in changes_of(given, usual):
        if not words or keyword in HOW_READ:
            continue
        said = " ".join(words)
        all_said.append(said)
        yield replace(first, settings=without_option(given, keyword, value), unmeant=said)
        for part, other in without_parts(keyword, value):
            yield replace(first, settings=given.with_(**{keyword: other}), unmeant=part)
        bare = without_option(bare, keyword, value)
    if len(all_said) > 1:
        yield replace(first, settings=bare, unmeant=all_of(all_said))


def without_parts(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A setting without one of its parts, and the option of that: rotary positions of the usual base."""
    if keyword not in IN_PARTS or not is_dataclass(value):
        return
    given: Any = value
    usual = type(given)()
    for setting in IN_PARTS[keyword].keys.values():
        part, of_usual = getattr(given, setting.name), getattr(usual, setting.name)
        words = setting.flags(part)
        if words and part != of_usual and setting.name != "kind":
            yield " ".join(words), replace(given, **{setting.name: of_usual})


def without_option(given: Settings, keyword: str, value: Any) -> Settings:
    """The settings but for a rule, or with a setting as it is by default."""
    rules = tuple(rule for rule in given.rules if rule_value(rule) != value or rule.name != keyword)
    if len(rules) < len(given.rules):
        return given.with_(rules=rules)
    if value == ALIBI:
        return given.with_(rules=tuple(rule for rule in given.rules if rule.name != ALIBI))
    return given.with_(**{keyword: getattr(Settings(), keyword)})


def with_options(first: Reading, settings: Settings, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """The same with an option that nobody gave, or with causal, or both."""
    bases: list[tuple[Settings, tuple[Unasked, ...]]] = [(settings, ())]
    by_causal: Unasked = ("--causal", "mask-unasked", "")
    bases += [(causal, (by_causal,)) for causal in with_causal(settings)]

    for base, unasked in bases:
        if unasked:
            yield replace(first, settings=base, unasked=unasked)
        for changed, step in steps_more(base, first.trace, sizes):
            yield replace(first, settings=changed, unasked=(step, *unasked))
    yield from with_names(first, settings)
    yield from with_heads(first, settings, sizes)


def steps_more(
    base: Settings, trace: Trace, sizes: Mapping[str, int]
) -> Iterator[tuple[Settings, Unasked]]:
    """One step more that Q, K or scores go through."""
    if base.positions == NONE and sizes.get("d_k", 1) % 2 == 0:
        for turn in (Rotary(), Rotary(interleaved=True)):
            said = " ".join(flags_of("positions", turn))
            yield base.with_(positions=turn), (said, "rotary-unasked", "")
    alibi = "--positions alibi", "alibi-unasked", "the scores have ALiBi added"
    yield base.with_(rules=(*base.rules, Alibi())), alibi
    if isinstance(base.positions, Rotary) and PAST_KEY in trace and not base.cache_unrotated:
        said = "--cache-unrotated"
        yield base.with_(cache_unrotated=True), (said, "cache-unasked", "past_key is yet to be rotated")
    for norm in head_norms(base, None, EPS[-1]):
        said = " ".join(flags_of("qk_norm", norm))
        yield base.with_(qk_norm=norm), (said, "norm-unasked", "Q and K are normed")


def with_causal(settings: Settings) -> Iterator[Settings]:
    if settings.mask is None and not any(isinstance(rule, VisibilityRule) for rule in settings.rules):
        yield settings.with_(rules=(Causal(), *settings.rules))


def shown_causal(first: Reading) -> Iterator[Reading]:
    """A causal mask that the weights show: no query sees a later key, and some see an earlier one."""
    weights = np.asarray(first.trace.get(WEIGHTS, ()))
    if weights.ndim < 2 or weights.shape[-2] != weights.shape[-1]:
        return
    later = np.triu(np.ones(weights.shape[-2:], bool), 1)
    is_shown = later.any() and not weights[..., later].any() and weights[..., later.T].any()
    if is_shown:
        for causal in with_causal(first.settings or Settings()):
            yield replace(first, settings=causal, presumed=("--causal",))


def with_names(first: Reading, settings: Settings) -> Iterator[Reading]:
    trace = first.trace
    read = first.trace.header.get("read", {})
    turned = {"Q": "Q_rotated", "K": "K_rotated"} if isinstance(settings.positions, Rotary) else {}
    names = {ours: other for ours, other in turned.items() if ours in trace and other not in trace}
    ways = [(names, "rotary-missing")] if len(names) > 1 else []
    ways += [({ours: names[ours]}, "rotary-one-sided") for ours in names]
    if {OUTPUT, W_O} <= set(trace) and CONCAT not in trace:
        ways.append(({OUTPUT: CONCAT}, "output-projection-missing"))
    for named, mistake in ways:
        if read.keys().isdisjoint(named):
            said = " ".join(f"--name {ours}={other}" for ours, other in named.items())
            yield replace(first, trace=rename_array(trace, named), unasked=((said, mistake, ""),))


def with_heads(first: Reading, settings: Settings, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """Other numbers of heads, few first, where nobody said any: arrays that show theirs fit no other."""
    columns = sizes.get("head", 1) * sizes.get("d_k", 1)
    for heads in range(2, min(columns, MOST_HEADS) + 1):
        if settings.heads is None and columns % heads == 0 and heads != sizes.get("head"):
            words = f"there are {heads} heads, not {sizes.get('head', 1)}"
            said = f"--heads {heads}", "heads-unasked", words
            yield replace(first, settings=settings.with_(heads=heads), unasked=(said,))
