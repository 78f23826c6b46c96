"""attnctl check: anyone's dump, recomputed; the first wrong step, and the mistake that explains it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from attnctl import api
from attnctl.base.errors import AttnError, Exit, raise_all
from attnctl.base.files import STANDARD_INPUT
from attnctl.base.setting import ARRAYS, ATTENTION
from attnctl.base.values import TOLERANCE, whole_number
from attnctl.cli import options
from attnctl.cli.model import IDS, SECTION
from attnctl.cli.options import command, option
from attnctl.cli.output import give
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.output import Element, say
from attnctl.drawing.screen.text import shell_line
from attnctl.formats import print_json
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.inputs.config.settings import Settings
from attnctl.record import Trace, is_unfinished
from attnctl.record.cells import spell_cell
from attnctl.sources import HELP, open_source
from attnctl.sources.dump import flags_meant, settings_over
from attnctl.sources.sentence import Arguments
from attnctl.verbs.check.exercise import read_source
from attnctl.verbs.check.report import Report
from attnctl.verbs.check.view import report_lines

OF_ATTENTION = " ".join(["config", *settings_with_flags(ARRAYS), *settings_with_flags(ATTENTION)])


@command(
    "attnctl check dump.json",
    "attnctl check theirs.npz --heads 2 --causal --name query=Q --name key=K --name value=V",
    "attnctl check handed-in.json --decimals 2 --quiet && echo right",
    "attnctl check --about softmax-over-queries",
)
def check(  # noqa: PLR0913  (options, and groups of them)
    *,
    source: Annotated[str | None, typer.Argument(help=HELP, metavar="SOURCE")] = None,
    decimals: Annotated[
        int | None,
        option(
            "The numbers were rounded to N decimals, 0 to 15 (by hand, or when printed).",
            terms=[
                options.excludes(
                    "rtol atol", "--decimals says how far off numbers may be; leave out --rtol and --atol"
                )
            ],
        ),
        whole_number(0, 15),
    ] = None,
    rtol: Annotated[
        float | None,
        option(
            "Allow numbers to be off by atol + rtol·|expected|. Default: as far as rounding can explain, "
            "given their type and the arithmetic."
        ),
        TOLERANCE,
    ] = None,
    atol: Annotated[float | None, option("See --rtol."), TOLERANCE] = None,
    full: options.Full = False,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("Print the report as JSON.")] = False,
    about: Annotated[
        str | None,
        option(
            "Explain a mistake instead: why people make it, the fix, an example.",
            metavar="NAME",
            terms=[options.excludes("source", "a page on a mistake needs no SOURCE; leave it out")],
        ),
    ] = None,
    trace: options.Trace = None,
    name: options.Name = None,
    layout: options.Arrays,
    config: options.Config = None,
    attention: options.Attention,
    model: Annotated[
        str | None,
        option(
            "The model that was ported: a folder, or a model id on the hub.",
            metavar="DIR",
            terms=[
                options.excludes(OF_ATTENTION, "it says what was meant; leave out the options of attention")
            ],
            section=SECTION,
        ),
    ] = None,
    layer: Annotated[
        str | None,
        option("The layer the arrays come from: 3, -1, decoder.1, cross.1.", metavar="N", section=SECTION),
    ] = None,
    ids: Annotated[
        tuple[int, ...] | None,
        option(
            "The token ids that were run; layer 0 is then checked from them.",
            terms=[options.needs("model", "add --model DIR")],
            section=SECTION,
        ),
        IDS,
    ] = None,
    max_memory: options.Memory = None,
    output: Annotated[list[str] | None, options.findings_option("check")] = None,
) -> Exit:
    """Recompute every step of a dump; name the first wrong one and the mistake that explains it.

    A dump written by attnctl records how each step was computed. Arrays of another program are recognized
    by our names (Q, K, V, scores, attention_weights, head_outputs, output, …; some are enough), by those
    of torch and Hugging Face models, and by common variable names; the options for attention, or a config,
    say what was intended. Options also override what a dump of attnctl records.

    Steps that are not recorded are recomputed from those that are. In an exercise, null cells and steps
    are blanks still to be filled in.

    With --model, the model defines what was meant and supplies the weights: dump a few arrays of one layer
    of a port (hidden or X, Q, K, …, under these or the usual names) and give --layer N. Without --layer
    the dump holds the input of each layer (hidden_0, hidden_1, …), and the first wrong layer is named.

    Exit codes: 0 every recorded step was judged and agrees; 1 a step is wrong, or a blank is not filled
    in; 2 none is wrong, but some cannot be judged, or there is nothing to compare.
    """
    if about is not None:
        from attnctl.cli.mistakes import explain_mistake

        explain_mistake(about, json=json)
        return Exit.OK
    if source is None:
        raise AttnError("no SOURCE; give one, or --about MISTAKE")
    asked = open_source(source, Arguments(trace=trace, rename=options.renames(name or [])), lone_word=False)
    raise_all(asked.list_unused({"--trace": trace, "--name": name or None}, {}))
    found = read_source(asked)
    if model is not None and layer is None:
        files, _ = options.split_outputs(output)
        raise_all(f"-o {file}: the layers of a model are told on stdout; add --layer N" for file in files)
        return check_layers(model, found, json=json, quiet=quiet)
    port = None
    if model is not None:
        from attnctl.models.run import ModelInput
        from attnctl.sources.model import Layers

        port = Layers(model, ModelInput(ids=ids), layer, Settings())
    settings = settings_over(found, config, {**layout, **attention})
    report = api.check(
        found,
        settings,
        rtol=rtol,
        atol=atol,
        decimals=decimals,
        layer=options.layer_number(layer) if model is None else None,
        model=port,
    )
    read = [source, *["--trace", trace or ""] * bool(trace)]
    read += [word for pair in name or [] for word in ("--name", pair)]
    unreadable = port or source == STANDARD_INPUT or is_unfinished(found)
    again = "" if unreadable else explain_command(report, read, settings)
    ending: list[Line] = [[], [("Why: ", "aside"), (again, "")]] if again else []

    def lines(screen: Screen) -> Iterator[Element]:
        yield from report_lines(report, screen)
        yield from ending

    give("check", [report], output, lines, json=json, quiet=quiet, full=full)
    return Exit.of(report.agrees)


def explain_command(report: Report, read: list[str], settings: Settings | None) -> str:
    """The command that shows the arithmetic of the first wrong number; "" where there is none."""
    wrong = next((finding for finding in report.findings if finding.gap.differing), None)
    meant = None if report.reading else flags_meant(report.trace, settings)
    if wrong is None or meant is None:
        return ""
    cell = spell_cell(report.trace, wrong.step, wrong.gap.at)
    return shell_line(["attnctl", "explain", read[0], cell, *read[1:], *meant, *report.presumed])


def check_layers(name: str, trace: Trace, *, json: bool, quiet: bool) -> Exit:
    from attnctl.verbs.check.layers import check_port

    checked = check_port(name, trace)
    wrong = [layer for layer in checked if not layer.agrees]
    if json:
        rows = [{**vars(layer), "agrees": layer.agrees} for layer in checked]
        print_json({"agrees": not wrong, "first": wrong[0].layer if wrong else None, "layers": rows})
    elif not quiet:
        for each in checked:
            verdict = "agrees" if each.agrees else "WRONG"
            where = ", ".join(map(str, each.at))
            off = f"off by {each.largest:.3g} at [{where}], allowed {each.allowed:.3g}"
            say(f"layer {each.layer}: {verdict}, {off}")
        if wrong:
            more = "Dump a few arrays of it (hidden, X, Q, K, attention_weights, output) and add --layer"
            say("", f"Layer {wrong[0].layer} is the first wrong one. {more} {wrong[0].layer}.")
    return Exit.of(not wrong)
