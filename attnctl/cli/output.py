"""Traces to where they were asked for: a table, a format on stdout, files by suffix; what they cost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import one_of, quote
from attnctl.cli.options import FORMAT_NAMES, FORMAT_VARIABLE, STDOUT, OutputOptions, ViewOptions
from attnctl.drawing.screen.text import shorten
from attnctl.formats import FINDINGS, FORMATS, is_picture, write_all
from attnctl.math.names import WEIGHTS, result_in
from attnctl.record.trace import Trace, require_steps

if TYPE_CHECKING:
    from attnctl.drawing.show.sheet import View
    from attnctl.inputs.plan.plan import Plan
    from attnctl.math.engine.cost import Cost


def emit(
    traces: Sequence[Trace],
    output: OutputOptions,
    view: ViewOptions,
    *,
    settable: bool = False,
) -> None:
    """Write traces as asked; `settable` says that --heads is an option of this command, too."""
    raise_all(unused_options(view, output))
    wanted = chosen_format(output.format, json=output.json)
    files, printed = split_outputs(output.output)
    kept = [select_steps(trace, view) for trace in traces]
    if view.story:
        from attnctl.cli.teaching import tell

        warn(traces)
        named = view.step is not None or view.brief
        tell(traces, [list(trace) if named else None for trace in kept])
        return
    require_heads(kept, view, settable=settable)
    warn(kept)
    if files:
        from attnctl.cli.progress import progress

        with progress("writing"):
            pictures = [path for path in files if is_picture(path)]
            write_all(of_heads(kept, view), [path for path in files if path not in pictures])
            write_all(kept, pictures, view_of(view, 2) if pictures else None)
        say_boxes(kept, files)
    if printed:
        print_traces(kept if wanted == "table" else of_heads(kept, view), wanted, view)


def of_heads(traces: Sequence[Trace], view: ViewOptions) -> Sequence[Trace]:
    """The traces as data has them: only the heads that --head names."""
    if view.head is None:
        return traces
    from attnctl.drawing.show.sheet import heads_of

    return [trace.select_heads(view.head, heads_of(trace)) for trace in traces]


def files_for(verb: str, outputs: Sequence[str] | None) -> tuple[list[str], bool]:
    """The files that findings go to, and whether stdout has them, too.

    Raises AttnError for a suffix that this verb's findings are not written in.
    """
    from attnctl.store.files import unwritable

    files, printed = split_outputs(outputs)
    raise_all(unwritable(files, FINDINGS[verb]))
    return files, printed


def split_outputs(outputs: Sequence[str] | None) -> tuple[list[str], bool]:
    """The files of -o, and whether stdout has it, too: - or nothing is named."""
    return [path for path in outputs or () if path != STDOUT], not outputs or STDOUT in outputs


def print_traces(traces: Sequence[Trace], wanted: str, view: ViewOptions) -> None:
    """Write traces on stdout in this format."""
    if wanted == "table":
        from attnctl.drawing.screen.output import print_view
        from attnctl.drawing.show.tables import lines_of_all

        print_view(lambda screen: lines_of_all(traces, screen, view_of(view, 4)))
    else:
        next(each for each in FORMATS if each.name == wanted).write(traces, sys.stdout)


def chosen_format(given: str | None, *, json: bool, possible: Sequence[str] = FORMAT_NAMES) -> str:
    """The format for stdout: flags beat the environment, which is left aside where it asks for another.

    Raises AttnError where --json and --format contradict each other, and for an unknown format.
    """
    if json and given not in {None, "json"}:
        raise AttnError(f"--json and --format {given}: one output, two formats; leave one of them out")
    if json or given:
        return given or "json"
    usual = os.environ.get(FORMAT_VARIABLE, "")
    if usual and usual not in {*FORMAT_NAMES, *(each.name for each in FORMATS)}:
        raise AttnError(f"{FORMAT_VARIABLE}: {quote(usual)} is no format; use {one_of(FORMAT_NAMES)}")
    return usual if usual in possible else "table"


def say_boxes(traces: Sequence[Trace], files: Sequence[str]) -> None:
    """Say on stderr which letters of the tokens a PNG has no picture of."""
    drawn = [path for path in files if path.endswith(".png")]
    if not drawn:
        return
    from attnctl.cli.program import complain
    from attnctl.drawing.pictures.png import lacking

    boxes = lacking(
        "".join(word for trace in traces for word in (trace.tokens or []) + (trace.key_tokens or []))
    )
    if boxes:
        complain(
            f"note: {drawn[0]}: its font lacks {shorten(boxes, 24)}, drawn as boxes; .svg has every letter"
        )


def unused_options(view: ViewOptions, output: OutputOptions) -> list[str]:
    """Files that cannot be written, view options that one of the outputs would ignore: before computing."""
    from attnctl.store.files import unwritable

    wanted = chosen_format(output.format, json=output.json)
    files, to_stdout = split_outputs(output.output)
    printed = wanted if to_stdout else None
    pictures = [is_picture(path) for path in files]
    table, drawn = printed == "table" and not files, bool(pictures) and all(pictures) and printed is None
    if view.story:
        told = [] if table else ["--story: it is text on stdout; leave out other formats and -o"]
        return [*told, *no_story(view)]
    out = (
        ["--precision: only tables and pictures have that; a dump keeps every digit"]
        if view.precision is not None and not (table or drawn)
        else []
    )
    out += unwritable(files, FORMATS)
    words = {"--full": view.full, "--heat": view.heat}
    out += [f"{flag}: only tables have that" for flag, value in words.items() if value and not table]
    if view.heat and table:
        words = {"--precision": view.precision is not None, "--full": view.full}
        out += [f"{flag}: a heat map has no numbers" for flag, value in words.items() if value]
    if not drawn and not (table and view.heat):
        named = {"--log": view.log, "--without-first": view.without_first}
        out += [
            f"{flag}: only pictures and heat maps have that; write -o picture.svg, or add --heat"
            for flag, value in named.items()
            if value
        ]
    return out


def no_story(view: ViewOptions) -> Iterator[str]:
    """View options that a story has no use for."""
    given = {
        "--head": view.head is not None,
        "--precision": view.precision is not None,
        "--full": view.full,
        "--heat": view.heat,
        "--log": view.log,
        "--without-first": view.without_first,
    }
    for flag, is_given in given.items():
        if is_given:
            yield f"{flag}: only tables and pictures have that; leave it out with --story"


def require_heads(traces: Sequence[Trace], view: ViewOptions, *, settable: bool) -> None:
    """Raise AttnError naming each head to show that a trace does not have."""
    from attnctl.drawing.show.sheet import count_heads

    try:
        for trace in traces if view.head else ():
            count_heads(trace, view.head)
    except AttnError as error:
        more = "; --heads N asks for N heads" if settable else ""
        raise AttnError(f"--head: {problem}{more}" for problem in error.problems) from None


def select_steps(trace: Trace, view: ViewOptions) -> Trace:
    wanted = wanted_steps(view.step)
    if wanted is not None:
        return trace.select(wanted)
    if view.brief:
        return trace.select([WEIGHTS, *result_in(trace)])
    return trace


def kept_steps(view: ViewOptions) -> list[str] | None:
    """The steps that must be kept of a run, None where all must: a story rests on other steps, too."""
    return None if view.story else wanted_steps(view.step)


def wanted_steps(step: str | None) -> list[str] | None:
    """The steps that --step names, None where it is not given."""
    if step is None:
        return None
    names = [name.strip() for name in step.split(",") if name.strip()]
    if not names:
        raise AttnError("--step: no name in it; write steps separated by commas, like scores,output")
    return names


def warn(traces: Sequence[Trace]) -> None:
    """Say on stderr what a person should know before they trust the numbers; each note once."""
    from attnctl.cli.program import complain

    for note in dict.fromkeys(note for trace in traces for note in trace.header.get("notes", ())):
        complain(f"note: {note}")
    for trace in traces:
        rows = trace.header.get("empty_rows")
        if rows:
            more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
            listed = ", ".join(str(row) for row in rows[:3])
            complain(f"warning: rows that may see nothing get zeros: {listed}{more} (head, query)")
        overflow = trace.header.get("overflow")
        if overflow:
            kind = trace.config.get("dtype", "this type of number")
            complain(f"warning: {overflow.get('step')} grows too large for {kind} at {overflow.get('at')}")


def view_of(view: ViewOptions, decimals: int) -> View:
    """The view that these options ask for; numbers have `decimals` digits where nothing says how many."""
    from attnctl.drawing.show.sheet import View

    steps = wanted_steps(view.step)
    return View(
        steps=None if steps is None else tuple(steps),
        heads=view.head,
        precision=decimals if view.precision is None else view.precision,
        brief=view.brief and steps is None,
        full=view.full,
        heat=view.heat,
        log=view.log,
        without_first=view.without_first,
    )


def print_costs(runs: Sequence[Plan], output: OutputOptions, view: ViewOptions) -> None:
    """Print what each step of each run would take; nothing is computed."""
    from attnctl.store.strict_json import print_json

    wanted = chosen_format(output.format, json=output.json, possible=("table", "json"))
    if set(output.output or ()) - {STDOUT} or wanted not in {"table", "json"}:
        raise AttnError("--cost: prints a table, or JSON with --json; leave out -o and other formats")
    if view.story:
        raise AttnError("--cost: nothing is computed that could be told; leave out --story")
    keep = wanted_steps(view.step)
    for run in runs:
        require_steps(keep or (), [step.name for step in run.derivation])
        costs = run.costs(keep)
        if wanted == "json":
            print_json({"steps": {each.name: cost_as_data(each) for each in costs}})
        else:
            print_cost_table(costs)


def cost_as_data(each: Cost) -> dict[str, object]:
    """One step's cost as JSON data."""
    return {
        "shape": list(each.shape),
        "bytes": each.bytes,
        "flops": each.flops,
        "grows": each.growth,
        "kept": each.kept,
    }


def print_cost_table(costs: Sequence[Cost]) -> None:
    """A row a step, and what is kept in all."""
    from attnctl.drawing.screen.listing import Listing
    from attnctl.drawing.screen.output import print_view
    from attnctl.math.engine.cost import size_text

    rows = [
        [
            (each.name, "name"),
            (" × ".join(map(str, each.shape)), ""),
            (each.growth, "aside"),
            (size_text(each.bytes) if each.kept else "not kept", ""),
            (f"{each.flops:,}", ""),
        ]
        for each in costs
    ]
    kept = size_text(sum(each.bytes for each in costs if each.kept))
    rows.append(
        [("in all", ""), ("", ""), ("", ""), (kept, ""), (f"{sum(each.flops for each in costs):,}", "")]
    )
    titles = [["step", "shape", "grows with", "bytes", "FLOPs"]]
    print_view(lambda screen: Listing(screen, titles, rows, frozenset({0, 1, 2})).fit(2).lines())
