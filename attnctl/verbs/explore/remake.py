"""Carry out a run again with an edit, another rule or another seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.setting import flag_text
from attnctl.base.words import quote
from attnctl.inputs.config.fields import SETTABLE
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.write import in_order, value_of
from attnctl.math.rules import Padding, Rule
from attnctl.record.cells import spell_cell
from attnctl.record.trace import Trace
from attnctl.sources.dump import Dump, Recorded
from attnctl.sources.sentence import Source
from attnctl.verbs.explore.layer import Made, TracedLayer
from attnctl.verbs.explore.walk import DIFFERENCE, NUMBERS, ExplorerState, Place, begin, carry_place


def begin_walk(source: Source) -> ExplorerState:
    """The walk that begins where the source does. Raises AttnError for what cannot be run or read."""
    if isinstance(source, Dump):
        traces = source.traces()
        layers = [
            TracedLayer(
                source.under_our_names(trace),
                meant=source.meant(trace),
                words=source.words_of(number, len(traces)),
            )
            for number, trace in enumerate(traces)
        ]
        return begin(tuple(layers))
    before = source.run(without_edits(source.settings))
    now = source.run(source.settings) if source.settings.edits else before
    return begin(lay_out(now, Made(source, source.settings), before))


def without_edits(settings: Settings) -> Settings:
    return settings.with_(edits=(), renormalize=False)


def lay_out(now: Sequence[Trace], made: Made, before: Sequence[Trace]) -> tuple[TracedLayer, ...]:
    """A layer for each trace, beside what it was before the edits."""
    olds = before if made.settings.edits else [None] * len(now)
    return tuple(TracedLayer(trace, made, old) for trace, old in zip(now, olds, strict=True))


def origin_of(layer: TracedLayer) -> Made:
    """The settings that made a trace; for one of a file, those that carry it out again.

    Raises AttnError with the reason where nothing does.
    """
    if layer.made is not None:
        return layer.made
    source = Recorded([layer.recorded], layer.words).again()
    return Made(source, source.settings)


def run_again(walk: ExplorerState, **changes: Any) -> ExplorerState:
    """The walk through the same run with other settings; one stands where one stood.

    An edit of a layer of a model flows into those after it. Raises AttnError where the settings
    have no meaning, and for edits in two layers.
    """
    how, at = origin_of(walk.layer), walk.place.layer
    first = how.edited_in if how.settings.edits else at
    settings = how.settings.with_(**changes)
    if first != at and len(settings.edits) > len(how.settings.edits):
        raise AttnError("an earlier layer is edited already; L goes back to it, u takes the edit back")
    place = first if len(walk.layers) > 1 and walk.layer.made is not None else 0
    only_edits = walk.layer.made is not None and set(changes) == {"edits"}
    if only_edits:
        before: Sequence[Trace] = [layer.before or layer.trace for layer in walk.layers[first:]]
    else:
        before = how.source.after(place).run(without_edits(settings))
    now = how.source.after(place).run(settings) if settings.edits else before
    layers = lay_out(now, Made(how.source, settings, first), before)
    whole = (*walk.layers[:first], *layers, *walk.layers[first + len(layers) :])
    return keep_place(replace(walk, layers=whole), walk)


def keep_place(walk: ExplorerState, before: ExplorerState) -> ExplorerState:
    """The walk at its places in the new traces: where a step is gone, at the one before it."""

    def restore(place: Place) -> Place:
        old, layer = before.layers[place.layer], walk.layers[place.layer]
        above = [*old.steps[: old.steps.index(place.step) + 1]]
        step = next((name for name in reversed(above) if name in layer.steps), layer.steps[0])
        if step == place.step and layer.trace[step].shape == old.trace[step].shape:
            return place
        from_here = replace(before, place=place, known={})
        return Place(place.layer, step, carry_place(from_here, layer.trace, step))

    mode = NUMBERS if walk.mode == DIFFERENCE and walk.layer.before is None else walk.mode
    history = tuple(map(restore, walk.history))
    return replace(walk, place=restore(walk.place), history=history, mode=mode, operand=0)


# --- edits ---


def add_edit(walk: ExplorerState, text: str) -> ExplorerState:
    """With one more edit: a number for this cell, `+=…` or `*=…` of it, or a whole CELL=VALUE.

    Raises AttnError where the text spells none, or it does not fit.
    """
    how = origin_of(walk.layer)
    return run_again(walk, edits=(*how.settings.edits, edit_of(walk, text.strip())))


def edit_of(walk: ExplorerState, text: str) -> str:
    if not text:
        raise AttnError("no number; write one, like 0.5, or += or *= before it")
    if walk.empty:
        raise AttnError(f"{walk.step} has no cells")
    if text.startswith(("=", "+=", "*=")):
        return here(walk) + text
    return text if "=" in text else f"{here(walk)}={text}"


def here(walk: ExplorerState) -> str:
    """The address of the cell, by token where its axes have tokens."""
    return spell_cell(walk.trace, walk.step, walk.place.cell)


def undo_edit(walk: ExplorerState) -> ExplorerState:
    """Without the last edit. Raises AttnError where there is none."""
    edits = walk.layer.edits
    if not edits:
        raise AttnError("nothing is edited")
    return run_again(walk, edits=edits[:-1])


# --- seed ---


def seed_of(walk: ExplorerState) -> int:
    """The seed. Raises AttnError where nothing was drawn."""
    how = origin_of(walk.layer)
    if how.source.no_seed:
        raise AttnError(how.source.no_seed)
    return how.settings.seed


def with_seed(walk: ExplorerState, text: str) -> ExplorerState:
    """Drawn from another seed. Raises AttnError where this is none, or nothing is drawn."""
    from attnctl.base.values import BadValueError, Plain
    from attnctl.inputs.config.fields import FIELDS

    seed_of(walk)
    try:
        seed = FIELDS["seed"].reader(Plain(text.strip()))
    except BadValueError as wrong:
        raise AttnError(f"seed: {what}" for _, what in wrong.problems) from None
    return run_again(walk, seed=seed)


# --- rules ---


def rules_of(walk: ExplorerState) -> dict[Rule, bool]:
    """The rules that may be switched, and whether each is on. Raises AttnError where none can be."""
    how = origin_of(walk.layer)
    if how.source.no_rules:
        raise AttnError(how.source.no_rules)
    now = {type(rule): rule for rule in how.settings.rules}
    usual = {type(rule): rule for rule in how.source.settings.rules}
    return {
        now.get(kind) or usual.get(kind) or kind.of(setting.at_example): kind in now
        for setting, kind in SETTABLE.items()
        if kind is not Padding or kind in usual  # only [PAD] tokens or lengths say what it hides
    }


def in_words(rule: Rule) -> str:
    """A rule as a person reads it: causal, window 3,0."""
    value = value_of(rule)
    return rule.name if value is True else f"{rule.name} {flag_text(value)}"


def switch_rule(walk: ExplorerState, name: str) -> ExplorerState:
    """With the rule of this name on where it was off, and off where it was on.

    Raises AttnError where there is no such rule, or the run cannot be made again.
    """
    choices = {rule.name: rule for rule in rules_of(walk)}
    if name not in choices:
        raise AttnError(f"no rule {quote(name)}; there are {', '.join(choices)}")
    rules = origin_of(walk.layer).settings.rules
    others = tuple(rule for rule in rules if rule.name != name)
    return run_again(walk, rules=in_order((*rules, choices[name])) if others == rules else others)
