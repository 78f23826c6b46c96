"""attnctl check: anyone's dump, recomputed; the first wrong step, and the mistake that explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attnctl.base.errors import AttnError, Exit, raise_all
from attnctl.base.setting import ARRAYS, ATTENTION, Given
from attnctl.base.values import TOLERANCE, whole
from attnctl.cli.app import make_app
from attnctl.cli.model import IDS, SECTION
from attnctl.cli.options import (
    SECTIONS,
    ArrayOptions,
    AttentionOptions,
    ConfigOption,
    FullOption,
    MemoryOption,
    NameOption,
    QuietOption,
    TraceOption,
    command,
    excludes,
    findings_option,
    layer_number,
    needs,
    option,
    renames,
    split_outputs,
)
from attnctl.drawing.screen.output import print_view
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments

if TYPE_CHECKING:
    from attnctl.evidence.record import Strictness
    from attnctl.inputs.plan.plan import DumpPlan
    from attnctl.record.trace import Trace
    from attnctl.verbs.check.exercise import UnfilledDump

app = make_app()


class CheckOptions(NamedTuple):
    """The tolerance of a check, and the form of its answer."""

    decimals: Annotated[
        int | None,
        option(
            "The numbers were rounded to N decimals (by hand, or when they were printed), 0 to 15.",
            terms=[
                excludes(
                    "rtol atol", "--decimals says how far off numbers may be; leave out --rtol and --atol"
                )
            ],
        ),
        whole(0, 15),
    ] = None
    rtol: Annotated[
        float | None,
        option(
            "Numbers may be atol + rtol·|expected| off. Otherwise they may be as far off as rounding puts "
            "them, which follows from their type and the arithmetic."
        ),
        TOLERANCE,
    ] = None
    atol: Annotated[float | None, option("See --rtol."), TOLERANCE] = None
    full: FullOption = False
    quiet: QuietOption = False
    json: Annotated[bool, option("Print the report as JSON.", "--json")] = False
    about: Annotated[
        str | None,
        option(
            "A page on a mistake instead: why people make it, the fix, an example.",
            metavar="NAME",
            terms=[excludes("source", "a page on a mistake needs no SOURCE; leave it out")],
        ),
    ] = None


OF_ATTENTION = " ".join(["config", *settings_with_flags(ARRAYS), *settings_with_flags(ATTENTION)])


class PortOptions(NamedTuple):
    """A model that says what was meant."""

    model: Annotated[
        str | None,
        option(
            "The model that was ported: a folder, or an id of the hub.",
            metavar="DIR",
            terms=[excludes(OF_ATTENTION, "it says what was meant; leave out the options of attention")],
        ),
    ] = None
    layer: Annotated[
        str | None, option("The layer that the arrays are of: 3, -1, decoder.1, cross.1.", metavar="N")
    ] = None
    ids: Annotated[
        tuple[int, ...] | None,
        option(
            "The ids that were run: layer 0 is then checked from them.",
            terms=[needs("model", "add --model DIR")],
        ),
        IDS,
    ] = None


SECTIONS[PortOptions] = SECTION


@command(
    app,
    "attnctl check dump.json",
    "attnctl check theirs.npz --heads 2 --causal --name query=Q --name key=K --name value=V",
    "attnctl check handed-in.json --decimals 2 --quiet && echo right",
    "attnctl check --about softmax-over-queries",
)
def check(  # noqa: PLR0913  (a group of options each)
    *,
    source: Annotated[str | None, typer.Argument(help=HELP, metavar="SOURCE")] = None,
    how: CheckOptions,
    trace: TraceOption = None,
    name: NameOption = None,
    layout: ArrayOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    model: PortOptions,
    max_memory: MemoryOption = None,
    output: Annotated[list[str] | None, findings_option("check")] = None,
) -> Exit:
    """Recompute every step of a dump; name the first wrong one and the mistake that explains it.

    A dump of attnctl says how each step came about. Arrays of another program are read by our
    names (Q, K, V, scores, attention_weights, head_outputs, output, …; some are enough) or by those
    of torch, of Hugging Face's models and of common variables, and the options for attention, or
    a config, say what was intended. Options overrule a dump of ours too.

    Steps that are not recorded are recomputed from those that are. In an exercise, null cells and
    steps are still to be filled in.

    With --model the model says what was meant and gives the weights: dump a few arrays of a layer
    of a port (hidden or X, Q, K, …, under these or the usual names) and --layer N. Without --layer
    the dump holds what came into each layer (hidden_0, hidden_1, …), and the first wrong layer is
    named.

    Exit codes: 0 every recorded step was judged and agrees; 1 one is wrong, or a blank is not filled
    in; 2 none is wrong, but some cannot be told, or there is nothing to compare.
    """
    from attnctl.formats import write_found
    from attnctl.inputs.plan.intended import under_our_names
    from attnctl.verbs.check.check import check as check_trace

    if how.about is not None:
        return explain_mistake(how.about, as_json=how.json)
    if source is None:
        raise AttnError("no SOURCE; give one, or --about MISTAKE")
    asked = {**layout, **attention}
    files, printed = split_outputs(output)
    exercise = read_input(source, trace, name or [])
    if model.model is not None and model.layer is None:
        raise_all(f"-o {file}: the layers of a model are told on stdout; add --layer N" for file in files)
        return layers_checked(model.model, exercise.trace, how)
    settings, arrays = settings_for(exercise.trace, config, asked), exercise.trace
    if model.model is None:
        arrays = under_our_names(arrays, settings, layer_number(model.layer))
    else:
        arrays, settings = plan_of_layer(model, arrays)
    report = check_trace(arrays, settings, strictness(how, exercise), exercise.begun, exercise.unfilled)
    if files:
        write_found("check", [report], files)
    if printed and how.json:
        from attnctl.formats import print_json

        print_json(report.to_dict(), indent=1)
    elif printed and not how.quiet:
        from attnctl.verbs.check.view import report_lines

        print_view(lambda screen: report_lines(report, screen), full=how.full)
    return Exit.of(report.agrees)


def read_input(source: str, trace: str | None, names: list[str]) -> UnfilledDump:
    """Read the dump or exercise to check, or carry out the run that is named."""
    from attnctl.verbs.check.exercise import UnfilledDump, read

    found = open_source(source, Arguments(trace=trace, rename=renames(names)), lone_word=False)
    raise_all(found.list_unused({"--trace": trace, "--name": names or None}, {}))
    exercise = read(found.path, renames(names)) if found.is_file else UnfilledDump(found.trace())
    if exercise.trace.kept_heads:
        raise AttnError(
            f"{source}: it was written with --head, and steps are made of all heads; leave that out"
        )
    return exercise


def explain_mistake(name: str, *, as_json: bool) -> Exit:
    """Print the page of a mistake."""
    from attnctl.formats import print_json
    from attnctl.verbs.check import about

    page = about.about(name)
    if as_json:
        print_json(page.to_dict(), indent=1)
    else:
        print_view(lambda screen: about.lines(page, screen))
    return Exit.OK


def plan_of_layer(port: PortOptions, trace: Trace) -> tuple[Trace, DumpPlan]:
    """The arrays in our layout, and the plan of the model's layer that they are of."""
    from attnctl.models.forward import embed_ids
    from attnctl.models.intent import plan_layer
    from attnctl.models.run import wanted_layers
    from attnctl.models.source import open_model

    assert port.model is not None
    assert port.layer is not None
    name = port.model
    wanted = wanted_layers(port.layer, lambda part: len(open_model(name, part).description.layers))
    if len(wanted.layers) != 1:
        raise AttnError(f"--layer {port.layer}: the arrays are of one layer; name that one")
    found = open_model(name, wanted.part)
    (index,) = wanted.layers
    first = embed_ids(found, list(port.ids)) if port.ids and index == 0 and not wanted.part else None
    return plan_layer(found, index, trace, wanted.cross, first)


def layers_checked(name: str, trace: Trace, how: CheckOptions) -> Exit:
    """Each layer from what came into it; the first wrong one is named."""
    from attnctl.drawing.screen.output import say
    from attnctl.evidence.precision import coarser, own
    from attnctl.formats import print_json
    from attnctl.models.source import open_model
    from attnctl.verbs.check.layers import check_layers, read_states

    found = open_model(name, dtype="float64")
    arrays = {each: trace[each] for each in trace}
    states = read_states(arrays, found.description["width"])
    precision = own(states[0])
    for state in states[1:]:
        precision = coarser(precision, own(state))
    checked = list(check_layers(found, states, precision.unit))
    wrong = [each for each in checked if not each.agrees]
    if how.json:
        rows = [{**vars(each), "agrees": each.agrees} for each in checked]
        told = {"agrees": not wrong, "first": wrong[0].layer if wrong else None, "layers": rows}
        print_json(told)
    elif not how.quiet:
        for each in checked:
            verdict = "agrees" if each.agrees else "WRONG"
            where = ", ".join(map(str, each.at))
            off = f"off by {each.largest:.3g} at [{where}], allowed {each.allowed:.3g}"
            say(f"layer {each.layer}: {verdict}, {off}")
        if wrong:
            more = "Dump a few arrays of it (hidden, X, Q, K, attention_weights, output) and add --layer"
            say("", f"Layer {wrong[0].layer} is the first wrong one. {more} {wrong[0].layer}.")
    return Exit.of(not wrong)


def settings_for(trace: Trace, config: str | None, attention: Given) -> Any:
    """Lay the options over the dump's own config; None where nothing but the dump says what was meant."""
    if not (config or attention):
        return None
    from attnctl.inputs.plan.intended import settings_of
    from attnctl.sources.sentence import settings_from

    return settings_from(config, attention, base=None if config else settings_of(trace))


def strictness(how: CheckOptions, exercise: UnfilledDump) -> Strictness:
    """Derive the tolerance; an exercise may say to how many decimals it is filled in."""
    from attnctl.evidence.record import Strictness

    decimals, own = how.decimals, exercise.trace.header.get("decimals")
    if decimals is None and (how.rtol, how.atol) == (None, None):
        decimals = own
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= 15):
        raise AttnError(f"decimals: {decimals!r} is not a number of decimals; use 0 to 15")
    filled_in = own is not None or exercise.begun or exercise.unfilled
    by_hand = decimals is not None and bool(filled_in)
    return Strictness(how.rtol, how.atol, decimals, by_hand, exercise.handed_out)
