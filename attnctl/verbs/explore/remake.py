"""Carry out a run again with an edit, another rule or another seed; and the shell commands that do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.setting import flag_text
from attnctl.base.values import BadValueError, Plain
from attnctl.base.words import quote
from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show import heads_of
from attnctl.inputs.config.fields import FIELDS, SETTABLE
from attnctl.inputs.config.flags import flags, rule_value, rules_in_order
from attnctl.inputs.config.settings import Settings
from attnctl.math.rules import Padding, Rule
from attnctl.record import Trace
from attnctl.record.cells import spell_cell
from attnctl.sources.dump import Dump, OfArrays, source_of_run
from attnctl.sources.model import Layers
from attnctl.sources.sentence import Source
from attnctl.store.files import encode_json
from attnctl.verbs.explore import ExplorerState, Made, Place, TracedLayer, begin, carry_place


def begin_walk(source: Source) -> ExplorerState:
    """The walk that begins where the source does. Raises AttnError for what cannot be run or read."""
    if isinstance(source, Dump):
        traces = source.traces()
        layers = []
        for number, trace in enumerate(traces):
            layer = TracedLayer(
                source.under_our_names(trace),
                meant=source.meant(trace),
                words=source.words_of(number, len(traces)),
            )
            layers.append(layer)
        return begin(tuple(layers))

    before = source.run(without_edits(source.settings))
    now = source.run(source.settings) if source.settings.edits else before
    return begin(layers_beside(now, Made(source, source.settings), before))


def without_edits(settings: Settings) -> Settings:
    return settings.with_(edits=(), renormalize=False)


def layers_beside(now: Sequence[Trace], made: Made, before: Sequence[Trace]) -> tuple[TracedLayer, ...]:
    """A layer for each trace, beside what it was before the edits."""
    olds = before if made.settings.edits else [None] * len(now)
    return tuple(TracedLayer(trace, made, old) for trace, old in zip(now, olds, strict=True))


def origin_of(walk: ExplorerState) -> Made:
    """The settings that made the trace, or that run one of a file again. Raises AttnError where none do."""
    if walk.layer.made is not None:
        return walk.layer.made
    source = source_of_run(walk.layer.recorded, walk.layer.words)
    return Made(source, source.settings)


def walk_again(walk: ExplorerState, **changes: Any) -> ExplorerState:
    """The walk through the same run with other settings; one stands where one stood.

    An edit of a layer of a model flows into those after it. Raises AttnError where the settings
    have no meaning, and for edits in two layers.
    """
    origin = origin_of(walk)
    here = walk.place.layer
    first = origin.edited_in if origin.settings.edits else here
    settings = origin.settings.with_(**changes)
    is_another_edit = len(settings.edits) > len(origin.settings.edits)
    if first != here and is_another_edit:
        raise AttnError("an earlier layer is edited already; L goes back to it, u takes the edit back")

    # Of a model the layers before the edited one stay as they are.
    is_model = len(walk.layers) > 1 and walk.layer.made is not None
    source = origin.source.after(first if is_model else 0)
    before = source.run(without_edits(settings))
    now = source.run(settings) if settings.edits else before

    layers = layers_beside(now, Made(origin.source, settings, first), before)
    earlier = walk.layers[:first]
    later = walk.layers[first + len(layers) :]
    return keep_place(replace(walk, layers=(*earlier, *layers, *later)), walk)


def keep_place(walk: ExplorerState, before: ExplorerState) -> ExplorerState:
    """The walk at its places in the new traces: where a step is gone, at the one before it."""

    def restore(place: Place) -> Place:
        old = before.layers[place.layer]
        layer = walk.layers[place.layer]
        above = old.steps[: old.steps.index(place.step) + 1]
        step = next((name for name in reversed(above) if name in layer.steps), layer.steps[0])
        if step == place.step and layer.trace[step].shape == old.trace[step].shape:
            return place
        from_here = replace(before, place=place, known={})
        return Place(place.layer, step, carry_place(from_here, layer.trace, step))

    history = tuple(map(restore, walk.history))
    return replace(walk, place=restore(walk.place), history=history, operand=0)


def add_edit(walk: ExplorerState, text: str) -> ExplorerState:
    """With one more edit: a number, `+=…` or `*=…` of it, or CELL=VALUE. Raises AttnError for others."""
    edits = origin_of(walk).settings.edits
    edit = text.strip()
    if not edit:
        raise AttnError("no number; write one, like 0.5, or += or *= before it")
    if walk.empty:
        raise AttnError(f"{walk.step} has no cells")

    if edit.startswith(("=", "+=", "*=")):
        edit = cell_here(walk) + edit
    elif "=" not in edit:
        edit = f"{cell_here(walk)}={edit}"
    return walk_again(walk, edits=(*edits, edit))


def cell_here(walk: ExplorerState) -> str:
    """The address of the cell, by token where its axes have tokens."""
    return spell_cell(walk.trace, walk.step, walk.place.cell)


def undo_edit(walk: ExplorerState) -> ExplorerState:
    """Without the last edit. Raises AttnError where there is none."""
    edits = walk.layer.edits
    if not edits:
        raise AttnError("nothing is edited")
    return walk_again(walk, edits=edits[:-1])


def seed_of(walk: ExplorerState) -> int:
    """The seed. Raises AttnError where nothing was drawn."""
    how = origin_of(walk)
    if how.source.no_seed:
        raise AttnError(how.source.no_seed)
    return how.settings.seed


def with_seed(walk: ExplorerState, text: str) -> ExplorerState:
    """Raises AttnError where this is no seed, or nothing is drawn."""
    seed_of(walk)
    try:
        seed = FIELDS["seed"].reader(Plain(text.strip()))
    except BadValueError as wrong:
        raise AttnError(f"seed: {what}" for _, what in wrong.problems) from None
    return walk_again(walk, seed=seed)


def switchable_rules(walk: ExplorerState) -> dict[Rule, bool]:
    """The rules that may be switched, and whether each is on. Raises AttnError where none can be."""
    how = origin_of(walk)
    if how.source.no_rules:
        raise AttnError(how.source.no_rules)
    now = {type(rule): rule for rule in how.settings.rules}
    usual = {type(rule): rule for rule in how.source.settings.rules}
    return {
        now.get(kind) or usual.get(kind) or kind.of(setting.at_example): kind in now
        for setting, kind in SETTABLE.items()
        if kind is not Padding or kind in usual  # only [PAD] tokens or lengths say what it hides
    }


def rule_text(rule: Rule) -> str:
    """Like window 3,0."""
    value = rule_value(rule)
    return rule.name if value is True else f"{rule.name} {flag_text(value)}"


def switch_rule(walk: ExplorerState, name: str) -> ExplorerState:
    """Raises AttnError where there is no such rule, or the run cannot be made again."""
    choices = {rule.name: rule for rule in switchable_rules(walk)}
    if name not in choices:
        raise AttnError(f"no rule {quote(name)}; there are {', '.join(choices)}")
    rules = origin_of(walk).settings.rules
    others = tuple(rule for rule in rules if rule.name != name)
    was_on = others != rules
    if was_on:
        return walk_again(walk, rules=others)
    return walk_again(walk, rules=rules_in_order((*rules, choices[name])))


# --- the commands that give what is seen: the matrix as a table, and the arithmetic of the cell ---


def commands(walk: ExplorerState) -> list[str]:
    made = walk.layer.made
    if made is None:
        return commands_on_file(walk)

    run = run_command(walk, made)
    lines = [as_typed([*run.words, "--step", walk.step, *head_words(walk)], config=run.config)]
    if not walk.empty:
        explain = ["attnctl", "explain", "-", cell_here(walk)]
        if made.settings.edits and walk.place.layer != made.edited_in:
            explain += ["--trace", "1"]  # behind the layer that is edited
        lines.append(as_typed([*run.words, "--json"], f" | {as_typed(explain)}", run.config))
    return lines


def commands_on_file(walk: ExplorerState) -> list[str]:
    """The commands for a trace that was read and not changed."""
    path, *options = walk.layer.words
    meant = [] if walk.layer.meant is None else flags(walk.layer.meant, Settings()) or []
    lines = []
    # `show` takes a dump as it is: no options that say how to read it, no steps that were computed.
    if not options and not meant and walk.step in walk.layer.recorded:
        lines.append(as_typed(["attnctl", "show", path, "--step", walk.step, *head_words(walk)]))
    if not walk.empty:
        lines.append(as_typed(["attnctl", "explain", path, cell_here(walk), *options, *meant]))
    return lines


def head_words(walk: ExplorerState) -> list[str]:
    """The option that picks the matrix that is shown, where its head does."""
    if walk.axes[:-2] != ("head",) or len(walk.axes) < 3:
        return []
    size = walk.array.shape[0]
    if size <= 1:
        return []
    # Where heads share a matrix, the first of them is the one to ask for.
    head = -(-walk.place.cell[0] * heads_of(walk.trace) // size)
    return ["--head", str(head)]


class RunCommand(NamedTuple):
    """The command that carries out a run, and the config that it reads from standard input, if any."""

    words: list[str]
    config: str = ""


def run_command(walk: ExplorerState, made: Made) -> RunCommand:
    source = made.source
    settings = made.settings
    options: list[str] = []
    match source:
        case Layers():
            return RunCommand(model_words(walk, source, made))
        case OfArrays():
            start = ["attnctl", "attend", *source.words]
            base = Settings()
        case _:
            (sentence,) = source.sentences or (None,)
            if sentence is not None and "\0" in sentence:  # no word of a shell can hold it
                return RunCommand(
                    ["attnctl", "run", "-c", "-"], config_json(settings.with_(sentence=sentence))
                )
            start = ["attnctl", "run"] if sentence is None else ["attnctl", "run", sentence]
            base = source.base
            if source.config:
                options = ["-c", source.config]

    differing = flags(settings, base)
    if differing is None:  # no flags say it: it takes a config
        return RunCommand([*start, "-c", "-"], config_json(settings))
    return RunCommand([*start, *options, *differing])


def config_json(settings: Settings) -> str:
    return encode_json(json.dumps(settings.to_dict(), ensure_ascii=False)).decode()


def model_words(walk: ExplorerState, source: Layers, made: Made) -> list[str]:
    """The command that runs the layer that is shown, and the one that is edited before it."""
    layers = {walk.place.layer}
    if made.settings.edits:
        layers.add(made.edited_in)
    names = [source.names[layer] for layer in sorted(layers)]

    prompt = source.input
    words = ["attnctl", "run"]
    if prompt.text is not None:
        words.append(prompt.text)
    words += ["--model", source.model, "--layer", ",".join(names)]
    for flag, value in (("--pair", prompt.pair), ("--context", prompt.context)):
        if value is not None:
            words += [flag, value]
    for flag, ids in (("--ids", prompt.ids), ("--context-ids", prompt.context_ids)):
        if ids is not None:
            words += [flag, ",".join(map(str, ids))]
    words += flags(made.settings, Settings(dtype="float32")) or []
    return words


def as_typed(words: list[str], pipe: str = "", config: str = "") -> str:
    """The words as a line of shell and what it is piped to; a config that it reads stands below."""
    _, verb, first, *others = words
    if verb == "run" and first.startswith("-") and first not in {"-c", "--model"}:  # it is the sentence
        words = ["attnctl", "run", *others, "--", first]

    line = shell_line(words)
    if not config:
        return line + pipe
    return f"{line} <<'CONFIG'{pipe}\n{config}\nCONFIG"
