"""Plans of anyone's arrays: attention on them, and what those of a dump were meant to be."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.inputs.arrays.counted import LEAST_SEEN, with_position_ids
from attnctl.inputs.arrays.documents import with_documents
from attnctl.inputs.arrays.foreign import OURS, read_foreign
from attnctl.inputs.arrays.laid import Laid
from attnctl.inputs.arrays.layout import in_base_e, with_empty_rows
from attnctl.inputs.arrays.reader import (
    ONES_ADDED,
    adds_ones,
    as_array,
    begin_backward,
    by_kind,
    read_arrays,
)
from attnctl.inputs.arrays.relative import read_relative
from attnctl.inputs.config.settings import NONE, OF_ARRAYS, SINUSOIDAL, Settings
from attnctl.inputs.config.sizes import (
    adds_positions,
    given_places,
    key_count,
    misplaced,
    rotary,
    unmeant_cache,
    written_masks,
    written_places,
)
from attnctl.inputs.plan import (
    DumpPlan,
    Plan,
    one_more,
    plan_of,
    variant,
    what_if_of,
    with_norm_rows,
    with_padding,
)
from attnctl.inputs.plan.sentence import learned_table, position_rows, with_positions
from attnctl.inputs.plan.tensors import Named
from attnctl.math import Array, Sizes
from attnctl.math.derivation import Derivation, Step, Variant, with_batch, without_projection
from attnctl.math.kind import HEADS, HeadNorm
from attnctl.math.names import (
    BIAS,
    BIAS_INDEX,
    BIAS_TABLE,
    EMBEDDINGS,
    KEY_LENGTHS,
    LOGSUMEXP,
    MASK,
    MEMORY,
    NORM_BIASES,
    NORM_WEIGHTS,
    OUTPUT,
    PAGE_TABLE,
    PAGES,
    POSITION_IDS,
    POSITIONS,
    SCALED,
    TABLE,
    X,
    is_gradient,
    leaves,
    where,
)
from attnctl.math.ops import Given, Unstated
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import Padding, PerBatch
from attnctl.record import Trace
from attnctl.store.header import foreign_step

if TYPE_CHECKING:
    from attnctl.math.ops.lookups import LookUp

OF_A_SENTENCE = {"sentence", "context", "vocab", "tokenizer", "seed", "embeddings", "weights"}
"""What a config says of a sentence and of drawing: of arrays that are given it says nothing."""


def plan_arrays(arrays: Mapping[str, Array], settings: Settings, header: Mapping[str, Any]) -> Plan:
    """Everything attention on these arrays needs; `header` may bring tokens.

    They are named and laid out as the help of `attnctl attend` says; beside cu_seqlens Q, K and V may be
    (n, head, d), and in place of K and V there may be key_pages, value_pages (page, slot, head, d) and
    page_table. A cache has the layout of K, or its heads split. A square matrix of weights is (in, out)
    unless all others are (out, in). Raises AttnError with every array that is missing, not finite or does
    not fit.
    """
    found = read_inputs(arrays, settings)
    settings = with_documents(found, settings)
    recorded = header.get("config", {})
    is_paged_dump = PAGE_TABLE in recorded and {*PAGES} <= found.keys()
    found = with_recorded_tables(found, recorded, is_paged_dump=is_paged_dump)

    laid, settings, gather = read_arrays(found, settings, strictly=True, ours=is_paged_dump)
    norms = recorded.get("qk_norm")  # as a dump says how it normed Q and K
    was_one_row = isinstance(norms, dict) and norms.get("over") == HEADS
    settings = with_norm_rows(settings, one_row=laid.one_row or was_one_row)

    offset = causal_offset(settings, laid.sizes, laid.lengths)
    laid, lookup = with_relative(laid, settings, offset)
    if lookup and BIAS in laid.arrays:
        raise AttnError(f"{BIAS} and {BIAS_TABLE}: both say what is added to the scores; give one of them")
    named = named_arrays(laid, settings, has_embeddings=EMBEDDINGS in arrays)

    words = words_in_header(header, laid.sizes)
    keys = words.get("key_tokens", words.get("tokens"))
    if laid.lengths is None and not keys and asks_for_padding(settings):
        place = settings.where(("rules",))
        raise AttnError(f"{place}: padding, but nothing says which keys are; give key_lengths")

    padded = hide_padding(settings, laid.lengths, keys or ())
    raise_all(misplaced(settings, laid.sizes, laid.places))
    kind = variant(padded, laid.sizes, named, offset, pages=gather, places=laid.places)
    kind = replace(kind, lookup=lookup)

    new_header = {**words, "config": config_of(settings, laid, offset, gather)}
    if lookup:
        new_header["config"][BIAS_INDEX] = lookup.numbers.tolist()
    if laid.notes:
        new_header["notes"] = list(laid.notes)
    return plan_of(kind, named, new_header, settings, what_if_of(settings))


def with_relative(laid: Laid, settings: Settings, offset: PerBatch) -> tuple[Laid, LookUp | None]:
    """The arrays with the table of a relative bias, and how it is read; None where there is none.

    A bias that is recorded beside it may hold the mask, too: then the table says too little.
    """
    if BIAS in laid.arrays and laid.arrays[BIAS].min() < LEAST_SEEN:
        return laid, None
    relative = read_relative(laid.relative, laid.sizes, settings, offset)
    if relative is None:
        return laid, None

    arrays = {**laid.arrays, **relative.arrays}
    notes = (*laid.notes, *([relative.note] if relative.note else []))
    return replace(laid, arrays=arrays, notes=notes), relative.lookup


def named_arrays(laid: Laid, settings: Settings, *, has_embeddings: bool) -> Named:
    """The arrays with how they came about; where positions are added to X, it is the embeddings."""
    named: Named = {name: (array, "given") for name, array in laid.arrays.items()}
    if not adds_positions(settings):
        return named

    named[EMBEDDINGS] = named.pop(X)
    # A dump, which has embeddings, has its memory with positions.
    if MEMORY in named and not has_embeddings:
        memory, _ = named[MEMORY]
        named[MEMORY] = memory, "given, with positions"
    past = laid.sizes.get("past", 0)
    return with_positions(named, settings, past, memory=not has_embeddings, places=laid.places)


def config_of(settings: Settings, laid: Laid, offset: PerBatch, gather: Gather | None) -> dict[str, Any]:
    """The config of a dump: what the settings say of arrays, and what these showed."""
    config = {name: value for name, value in settings.to_dict().items() if name not in OF_A_SENTENCE}
    config |= {"heads": laid.sizes["head"], "kv_heads": laid.sizes["kv_head"]}
    config["causal_offset"] = as_json_number(offset)
    if laid.lengths is not None:
        config[KEY_LENGTHS] = as_json_number(laid.lengths)
    if laid.places:
        config[POSITION_IDS] = np.array(laid.places).tolist()
    if gather:
        config[PAGE_TABLE] = [list(row) for row in gather.table]
    return config


def read_inputs(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """Every input by name: from the arrays, and the mask and bias that the settings bring.

    A dump of ours has X with its positions added; where they are to be added, its embeddings are
    taken. Raises AttnError for rows of different lengths, and for two masks that differ.
    """
    wanted = where(lambda row: row.input and (settings.backward or not row.gradient))
    found = {name: as_array(name, arrays[name]) for name in wanted if name in arrays}
    found = in_base_e(begin_backward(found), settings)
    if adds_positions(settings) and EMBEDDINGS in arrays:
        found[X] = as_array(EMBEDDINGS, arrays[EMBEDDINGS])

    for name, written in written_masks(settings).items():
        if not np.array_equal(found.setdefault(name, written), written):
            raise AttnError(f"{settings.where(('rules', name))}: the arrays hold another {name}; give one")

    # Whole numbers under the name of learned positions are these, too.
    found = dict(with_position_ids(found))
    for name, written in written_places(settings).items():
        if not np.array_equal(found.setdefault(name, written), written):
            raise AttnError(f"{settings.where((name,))}: the arrays hold other {name}; give one of them")
    return found


def as_json_number(value: PerBatch) -> int | list[int]:
    return value if isinstance(value, int) else list(value)


def with_recorded_tables(
    found: Mapping[str, Array], recorded: Mapping[str, Any], *, is_paged_dump: bool
) -> dict[str, Array]:
    """The arrays, and before them the tables of pages and of a bias that a dump's config has."""
    tables: dict[str, Array] = {}
    if is_paged_dump:
        for name in (PAGE_TABLE, KEY_LENGTHS):
            if name in recorded:
                tables[name] = as_array(name, recorded[name])

    out = tables | dict(found)
    if BIAS_TABLE in out and BIAS_INDEX in recorded:
        out.setdefault(BIAS_INDEX, as_array(BIAS_INDEX, recorded[BIAS_INDEX]))
    return out


def asks_for_padding(settings: Settings) -> bool:
    return any(type(rule) is Padding for rule in settings.rules)


def hide_padding(settings: Settings, lengths: PerBatch | None, keys: Sequence[str]) -> Settings:
    """The settings with the padding that lengths show, or, where it is asked for, the tokens of keys."""
    tokens = keys if asks_for_padding(settings) else ()
    rules = with_padding(settings.rules, lengths, tokens)
    return replace(settings, rules=rules)


def causal_offset(settings: Settings, sizes: Sizes, lengths: PerBatch | None) -> PerBatch:
    """The number of keys before query 0: as asked, or else the cache's; otherwise 0 (top-left).

    With fewer queries than keys and lengths it is lengths − queries: the queries are the last
    tokens. LENGTHS asks for that whatever the number of queries. Raises AttnError where it does
    and there are no lengths.
    """
    offset = settings.causal_offset
    past = sizes.get("past", 0)
    queries = sizes.get("query", 0)
    if offset is None and (past or lengths is None or queries >= key_count(sizes)):
        return past
    if offset is not None and not isinstance(offset, str):
        return offset

    if lengths is None:
        raise AttnError(f"{settings.where(('causal_offset',))}: lengths, but no key_lengths; give them")
    if isinstance(lengths, int):
        return lengths - queries
    return tuple(length - queries for length in lengths)


def words_in_header(header: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The sentence and tokens of a header, where they are of this length."""
    tokens = header.get("tokens")
    key_tokens = header.get("key_tokens", tokens)
    if not tokens or "batch" in sizes:
        return {}
    if len(tokens) != sizes.get("query", 0) or len(key_tokens) != key_count(sizes):
        return {}

    kept = ("sentence", "context", "tokens", "ids", "key_tokens")
    return {name: header[name] for name in kept if name in header}


# --- dumps ---

NOT_MEANT = {KEY_LENGTHS, POSITION_IDS, BIAS_INDEX, PAGE_TABLE, "causal_offset", "edits", "renormalize"}
"""What a dump's config may hold beside the settings of a config file, or in another form."""


def plan_dump(trace: Trace, settings: Settings | None = None) -> tuple[Trace, DumpPlan]:
    """A dump's arrays in our layout, and what they were meant to be by itself, config or `settings`."""
    if settings is not None:
        return derive_plan(trace, settings, trace.config.get(KEY_LENGTHS), keep=False)
    if states_every_step(trace):
        return trace, plan_as_stated(trace)
    return derive_plan(trace, settings_of(trace), trace.config.get(KEY_LENGTHS), keep=True)


def states_every_step(trace: Trace) -> bool:
    """True if every step says how it came about, from steps that are all there."""
    for step in trace.steps.values():
        if isinstance(step.op, Unstated):
            return False
        if any(name not in trace for name in step.inputs):
            return False
    return True


def plan_as_stated(trace: Trace) -> DumpPlan:
    """The plan of a dump of ours, which says itself how each of its steps came about."""
    sizes: dict[str, int] = {}
    for name, step in trace.steps.items():
        sizes.update(zip(step.axes, trace[name].shape, strict=True))

    queries = sizes.get("query", sizes.get("token", 0))
    return DumpPlan(trace.derivation, {**sizes, "query": queries})


def trace_of_arrays(arrays: Mapping[str, Any]) -> Trace:
    """Arrays of no file as a trace that says nothing of how they came about; a trace stays as it is."""
    if isinstance(arrays, Trace):
        return arrays
    found = {name: as_array(name, array) for name, array in arrays.items()}
    steps = {name: foreign_step(name, array) for name, array in found.items()}
    return Trace(steps, found)


def under_our_names(trace: Trace, settings: Settings | None = None, layer: int | None = None) -> Trace:
    """The trace with the arrays of someone else's file under our names, as far as theirs are known.

    Its header says which arrays were read so (`read`), and what was left out (`notes`). A dump of
    ours stays as it is. `layer` is the one to read. Raises AttnError where that is not known.
    """
    has_our_names = layer is None and all(name in OURS for name in trace)
    if trace.header or has_our_names:
        if layer is not None:
            what = "this dump has names of its own, and no layers to choose from"
            raise AttnError(f"--layer {layer}: {what}")
        return trace

    heads = (settings.heads, settings.kv_heads) if settings else (None, None)
    found = read_foreign(trace, layer, *heads)
    names = [name for name in TABLE if name in found.arrays]
    names += [name for name in found.arrays if name not in TABLE]
    steps = {name: foreign_step(name, found.arrays[name]) for name in names}

    header = dict(trace.header)
    if found.read or found.notes:
        header |= {"read": found.read, "notes": found.notes}
    return replace(trace, steps=steps, arrays=found.arrays, header=header)


def derive_plan(
    trace: Trace, settings: Settings, lengths: Any = None, *, keep: bool = True
) -> tuple[Trace, DumpPlan]:
    """Plan these settings on a file's arrays; where a step says how it came about, that stands.

    `lengths` are those of the keys where the file has no `key_lengths`; with `keep` False the
    settings overrule what steps say of themselves.
    """
    raise_all(unmeant_cache(trace, settings))
    raise_all(needless_of_arrays(trace, settings))
    if not keep:
        raise_all(added_to_nothing(trace, settings))
    settings = with_documents(trace, with_recorded_results(trace, settings))

    has_batch = any("batch" in step.axes for step in trace.steps.values() if step.inputs)
    laid, settings, gather = read_arrays(
        with_written(trace, settings, lengths),
        settings,
        batch_first=has_batch,
        ours=PAGE_TABLE in trace.config,
    )
    offset = causal_offset(settings, laid.sizes, laid.lengths)
    laid, lookup = with_relative(laid, settings, offset)

    settings, norm_notes = with_norms(settings, laid)
    notes = [*laid.notes, *norm_notes]
    if MASK in trace and adds_ones(as_array(MASK, trace[MASK])):
        notes.append(f"{ONES_ADDED}.")
    chunks = laid.sizes.get("chunk")
    if settings.chunks is None and chunks:
        settings = replace(settings, chunks=chunks)
        notes.append(f"Read {chunks} chunks of keys, as equal as can be; --chunks says otherwise.")

    raise_all(misplaced(settings, laid.sizes, laid.places))
    learned = None
    if EMBEDDINGS in laid.arrays:
        past = laid.sizes.get("past", 0)
        learned = learned_table(settings, laid.arrays[EMBEDDINGS].shape, past, laid.places)

    derivation, unasked = derive_recorded(
        laid, settings, trace.key_tokens or (), pages=gather, lookup=lookup
    )
    arrays = with_empty_rows(laid.arrays, derivation, settings.lse_empty, key_count(laid.sizes))
    if keep:
        derivation = with_stated_steps(derivation, trace)

    steps: dict[str, Step] = {}
    for name, array in arrays.items():
        steps[name] = derivation[name] if name in derivation else aside(name, array)

    plan = DumpPlan(
        derivation=derivation,
        sizes=laid.sizes,
        notes=tuple(notes),
        unasked=unasked,
        unknown=tuple(name for name in trace if name not in TABLE or TABLE[name].model),
        learned=learned,
    )
    return Trace(steps, arrays, trace.header), plan


def needless_of_arrays(trace: Trace, settings: Settings) -> Iterator[str]:
    """Settings that say how arrays are laid out, where a dump of ours says so itself."""
    if not trace.config:
        return
    for name in sorted(OF_ARRAYS):
        if getattr(settings, name) is not None:
            place = settings.where((name,))
            yield f"{place}: a dump of attnctl says itself what its arrays are; leave it out"


def added_to_nothing(trace: Trace, settings: Settings) -> Iterator[str]:
    """Positions that are added to embeddings, where there are none: X has its positions already."""
    if adds_positions(settings) and EMBEDDINGS not in trace:
        place = settings.where(("positions",))
        what = "these positions are added to embeddings, which are not among the arrays"
        yield f"{place}: {what}; give embeddings (--name THEIRS=embeddings), or leave it out"


def with_recorded_results(trace: Trace, settings: Settings) -> Settings:
    """The settings with the gradients and log-sum-exps that are recorded: nobody need ask for them."""
    if any(map(is_gradient, trace)):
        settings = replace(settings, backward=True)
    if LOGSUMEXP in trace:
        settings = replace(settings, logsumexp=True)
    return settings


def with_norms(settings: Settings, laid: Laid) -> tuple[Settings, tuple[str, ...]]:
    """The settings with norms of Q and K where their weights are recorded, and what to say of it."""
    recorded = [name for name in NORM_WEIGHTS if name in laid.arrays]
    notes: tuple[str, ...] = ()
    if recorded and settings.qk_norm is None:
        settings = replace(settings, qk_norm=HeadNorm())
        what = "weights of RMSNorm (eps 1e-06) of Q and K, before any rotation"
        notes = (f"Read {' '.join(recorded)} as {what}; --qk-norm says otherwise.",)
    return with_norm_rows(settings, one_row=laid.one_row), notes


def with_stated_steps(derivation: Derivation, trace: Trace) -> Derivation:
    """The derivation with the steps of a file in place of its own, where these say how they came about."""
    steps: list[Step] = []
    for step in derivation:
        recorded = trace.steps.get(step.name, step)
        steps.append(step if isinstance(recorded.op, Unstated) else recorded)
    return with_leaves(tuple(steps))


def with_written(trace: Trace, settings: Settings, lengths: Any) -> dict[str, Array]:
    """The arrays of a file, and what it leaves out of those that settings and a config write out."""
    arrays = {name: np.asarray(trace[name]) for name in trace}
    if isinstance(settings.positions, list) and EMBEDDINGS in arrays:
        shape = arrays[EMBEDDINGS].shape
        places = given_places(positions_of(trace, settings), {"query": shape[-2]})
        arrays.setdefault(POSITIONS, position_rows(settings, shape, places=places))

    if lengths is not None:
        arrays.setdefault(KEY_LENGTHS, np.asarray(lengths))
    arrays |= positions_of(trace, settings)

    # What says how these are read is no step, and stands in the config of a dump.
    if BIAS_INDEX in trace.config and BIAS_TABLE in arrays:
        arrays.setdefault(BIAS_INDEX, as_array(BIAS_INDEX, trace.config[BIAS_INDEX]))
    if PAGE_TABLE in trace.config and {*PAGES} <= arrays.keys():
        arrays.setdefault(PAGE_TABLE, as_array(PAGE_TABLE, trace.config[PAGE_TABLE]))

    recorded, _ = by_kind(begin_backward(arrays))
    return written_masks(settings) | in_base_e(recorded, settings)


def positions_of(trace: Trace, settings: Settings) -> dict[str, Array]:
    """The positions of the tokens: as recorded, or else as the settings or the dump's config have them."""
    found = with_position_ids(trace)
    if POSITION_IDS in found:
        return {POSITION_IDS: np.asarray(found[POSITION_IDS])}
    if POSITION_IDS in trace.config and settings.position_ids is None:
        return {POSITION_IDS: as_array(POSITION_IDS, trace.config[POSITION_IDS])}
    return written_places(settings)


def with_leaves(steps: tuple[Step, ...]) -> Derivation:
    """These steps below what they read and the file leaves out: a derivation reads only its own lines."""
    names = {step.name for step in steps}
    leaves_read: dict[str, Step] = {}
    for step in steps:
        for name in step.inputs:
            if name not in names and name in TABLE:
                row = TABLE[name]
                leaves_read[name] = Step(name, Given(), (), row.axes, formula="given", symbol=row.symbol)

    return Derivation((*leaves_read.values(), *steps))


def aside(name: str, array: Array) -> Step:
    """A recorded step that this derivation has no use for."""
    every_axis = ("batch", *TABLE[name].axes)
    return Step(name, Unstated(), (), axes=every_axis[-array.ndim :], formula="", symbol=name)


def derive_recorded(
    laid: Laid,
    settings: Settings,
    keys: Sequence[str],
    pages: Gather | None = None,
    lookup: LookUp | None = None,
) -> tuple[Derivation, dict[str, str]]:
    """The derivation of arrays in our layout, and the recorded steps that nothing asks for, by option.

    A step that is recorded though nothing asks for it is kept, unexplained: what follows reads it.
    Without W_O the output is the heads side by side. `keys` are the tokens of the keys.
    """
    arrays = laid.arrays
    sizes = laid.sizes
    is_sinusoidal = settings.positions == SINUSOIDAL and EMBEDDINGS in arrays
    # Learned positions are recorded as they are; nothing makes them.
    if not is_sinusoidal and rotary(settings) is None:
        settings = replace(settings, positions=NONE)
    settings = hide_padding(settings, laid.lengths, keys)

    given = given_leaves(arrays, is_sinusoidal=is_sinusoidal)
    offset = causal_offset(settings, sizes, laid.lengths)
    variant_asked = variant(settings, sizes, given, offset, pages=pages, places=laid.places)
    variant_asked = replace(variant_asked, lookup=lookup)
    asked_for, unasked = with_unasked(variant_asked, arrays)

    unexplained = dict(unasked)
    if not sizes.get("d_k") and settings.scale is None:
        unexplained[SCALED] = ""  # nothing shows by what they were scaled

    def as_recorded(step: Step) -> Step:
        if step.name not in unexplained:
            return step
        return replace(step, op=Unstated(unexplained[step.name]))

    steps = list(map(as_recorded, asked_for.derivation))
    if OUTPUT in arrays and OUTPUT not in asked_for.derivation:
        forward = [step for step in steps if not TABLE[step.name].gradient]
        output = without_projection(forward[-1].name)
        steps.insert(len(forward), with_batch(output) if asked_for.batch else output)
    return Derivation(tuple(steps)), {name: unasked[name] for name in unasked if name in arrays}


def given_leaves(arrays: Mapping[str, Array], *, is_sinusoidal: bool) -> Named:
    """The recorded arrays that a derivation begins with."""
    given: Named = {name: (arrays[name], "given") for name in leaves() if name in arrays}
    for weight, bias in zip(NORM_WEIGHTS, NORM_BIASES, strict=True):
        if weight not in given:  # a bias alone says nothing
            given.pop(bias, None)
    if is_sinusoidal:
        given.pop(POSITIONS, None)  # they are computed
    return given


def with_unasked(v: Variant, recorded: Container[str]) -> tuple[Variant, dict[str, str]]:
    """The variant with the steps that are recorded though nobody asked for them, each with its option."""
    unasked: dict[str, str] = {}
    for name in where(lambda row: not (row.leaf or row.result or row.model) and row.name in recorded):
        if name in v.derivation:
            continue

        for option, more in one_more(v):
            if name in more.derivation:
                added = [step.name for step in more.derivation if step.name not in v.derivation]
                unasked |= dict.fromkeys(added, option)
                v = more
                break

    return v, unasked


def settings_of(trace: Trace) -> Settings:
    """The settings that a dump's config describes; the defaults where it has none."""
    offset: Any = trace.config.get("causal_offset")  # a number, one for each member of a batch, or none
    offsets = offset if isinstance(offset, list) else [offset]
    if offset is not None and not all(type(number) is int and abs(number) < 2**31 for number in offsets):
        raise AttnError(f"$.config.causal_offset: {offset!r} is not a number of keys")
    if isinstance(offset, list):
        offset = tuple(offset)

    config = {name: value for name, value in trace.config.items() if name not in NOT_MEANT}
    if not config:
        return Settings(causal_offset=offset)

    from attnctl.inputs.config.form import validate

    return validate(config).with_(causal_offset=offset)
