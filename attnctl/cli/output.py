"""Runs carried out, and what comes of them: tables, formats on stdout, files by suffix, costs; progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.cli.options import STDOUT, OutputOptions, ViewOptions, chosen_format, split_outputs
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import (
    Element,
    output_for,
    print_lines,
    print_view,
    say,
    screen_of,
    with_next,
)
from attnctl.drawing.show import View, count_heads, heads_of
from attnctl.formats import (
    FORMATS,
    NOTATIONS,
    is_notation,
    is_picture,
    is_program,
    print_findings,
    print_json,
    write_all,
    write_found,
)
from attnctl.inputs.config.fields import is_given
from attnctl.math.engine.cost import Cost, size_text
from attnctl.math.names import TABLE, result_in, shares_in
from attnctl.record import Trace
from attnctl.sources import last

if TYPE_CHECKING:
    from attnctl.drawing.screen import Screen
    from attnctl.sources.sentence import Source

TraceLines = Callable[[Trace, "Screen"], Iterable[Element]]


def emit(
    traces: Sequence[Trace],
    output: OutputOptions,
    view: ViewOptions,
    *,
    settable: bool = False,
    lines: TraceLines | None = None,
) -> None:
    """Write traces as asked; `settable` says that --heads is an option of this command, too.

    `lines` are what a table shows where no steps are asked for.
    """
    wanted = chosen_format(output.format, json=output.json)
    files, printed = split_outputs(output.output)
    if view.grid is not None:
        from attnctl.cli.grids import on_grid

        traces = on_grid(traces, view.grid, view.picture)
    kept = [select_steps(trace, view) for trace in traces]
    if view.story:
        warn(traces)
        names_steps = view.step is not None or view.brief
        tell(traces, [list(trace) if names_steps else None for trace in kept])
        return

    require_heads(kept, view, settable=settable)
    if is_written_as_program(output):
        require_program_of(traces, view)
    warn(kept)
    if files:
        with progress("writing"):
            notations = [path for path in files if is_notation(path, output.notation)]
            pictures = [path for path in files if is_picture(path)]
            data = [path for path in files if path not in {*pictures, *notations}]
            write_all(without_weights(of_heads(kept, view), view, data), data)
            write_all(kept, pictures, view_of(view, 2) if pictures else None)
            # Whole, as a program is made of steps that it does not show.
            write_all(traces, notations, view_of(view, 4), output.notation)

    if not printed:
        return
    if output.notation:
        asked = next(each for each in NOTATIONS if each.name == output.notation)
        asked.write(traces, sys.stdout, view_of(view, 4))
    elif wanted != "table":
        chosen = next(each for each in FORMATS if each.name == wanted)
        chosen.write(of_heads(kept, view), sys.stdout)
    elif lines and not any(is_given(value) for value in view):
        print_view(lambda screen: (line for trace in kept for line in lines(trace, screen)))
    else:
        from attnctl.drawing.show.tables import lines_of_all

        print_view(lambda screen: lines_of_all(kept, screen, view_of(view, 4)))


def carry_out(
    sources: Sequence[Source],
    cost: bool,
    view: ViewOptions,
    output: OutputOptions,
    keep: Sequence[str] | None = None,
    *,
    of_model: bool = False,
    lines: TraceLines | None = None,
) -> None:
    """Write the traces of these runs as asked, or print what they would cost; they are the last run."""
    if cost:
        print_costs(sources, output, view)
        return
    if is_written_as_program(output):
        keep = None  # each step is a line of it
    elif keep is None and not view.story:  # which rests on steps that it does not name, too
        keep = wanted_steps(view.step)

    traces: list[Trace] = []
    with progress("layers" if of_model else "attending") as moved:
        for source in sources:
            traces += source.run(keep=keep, progress=moved)

    note = last.keep(traces)
    if note:
        complain(note)
    emit(traces, output, view, settable=not of_model, lines=lines)


def without_weights(traces: Sequence[Trace], view: ViewOptions, files: Sequence[str]) -> Sequence[Trace]:
    """Layers of a model that an .npz holds together, without the weights, which the model has.

    Where steps are named, all of them are kept.
    """
    together = [path for path in files if Path(path).suffix == ".npz"]
    if len(traces) < 2 or view.step is not None or len(together) < len(files):
        return traces
    if not together or not all("model" in trace.header for trace in traces):
        return traces

    complain(f"note: {together[0]}: without the weights of the model; --step names what else to keep")
    return [trace.select([name for name in trace if not is_model_weight(name)]) for trace in traces]


def is_model_weight(name: str) -> bool:
    row = TABLE.get(name)
    return row is not None and row.leaf and row.once and not row.gradient


def is_written_as_program(output: OutputOptions) -> bool:
    """True where a program is to be written, which is made of all steps."""
    files, printed = split_outputs(output.output)
    names_program = any(each.takes_path and each.name == output.notation for each in NOTATIONS)
    return (printed and names_program) or any(map(is_program, files))


def require_program_of(traces: Sequence[Trace], view: ViewOptions) -> None:
    """Raise AttnError naming each option that a program would leave aside, and for several traces."""
    if len(traces) != 1:
        raise AttnError(f"a program is of one trace, not of {len(traces)}; name one sentence, or --trace N")
    lacking = {"--head": (view.head, "all heads"), "--precision": (view.precision, "every digit")}
    lacking["--log"] = (view.log or None, "no colours")
    raise_all(
        f"{flag}: a program has {what}; leave it out"
        for flag, (value, what) in lacking.items()
        if value is not None
    )


def of_heads(traces: Sequence[Trace], view: ViewOptions) -> Sequence[Trace]:
    """The traces as data has them: only the heads that --head names."""
    if view.head is None:
        return traces
    return [trace.select_heads(view.head, heads_of(trace)) for trace in traces]


def require_heads(traces: Sequence[Trace], view: ViewOptions, *, settable: bool) -> None:
    """Raise AttnError naming each head to show that a trace does not have."""
    if not view.head:
        return

    try:
        for trace in traces:
            count_heads(trace, view.head)
    except AttnError as error:
        more = "; --heads N asks for N heads" if settable else ""
        raise AttnError(f"--head: {problem}{more}" for problem in error.problems) from None


def select_steps(trace: Trace, view: ViewOptions) -> Trace:
    wanted = wanted_steps(view.step)
    if wanted is not None:
        return trace.select(wanted)
    if view.brief:
        return trace.select([*shares_in(trace), *result_in(trace)])
    return trace


def wanted_steps(step: str | None) -> list[str] | None:
    if step is None:
        return None
    names = [name.strip() for name in step.split(",") if name.strip()]
    if not names:
        raise AttnError("--step: no name in it; write steps separated by commas, like scores,output")
    return names


def warn(traces: Sequence[Trace]) -> None:
    """Say on stderr what a person should know before they trust the numbers; each note once."""
    notes = dict.fromkeys(note for trace in traces for note in trace.header.get("notes", ()))
    for note in notes:
        complain(f"note: {note}")

    for trace in traces:
        rows = trace.header.get("empty_rows")
        if rows:
            more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
            listed = ", ".join(map(str, rows[:3]))
            complain(f"warning: rows that may see nothing get zeros: {listed}{more} (head, query)")

        overflow = trace.header.get("overflow")
        if overflow:
            kind = trace.config.get("dtype", "this type of number")
            complain(f"warning: {overflow.get('step')} grows too large for {kind} at {overflow.get('at')}")


def view_of(view: ViewOptions, decimals: int) -> View:
    """The view that these options ask for; numbers have `decimals` digits where nothing says how many."""
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
        query=view.query,
    )


def print_costs(sources: Sequence[Source], output: OutputOptions, view: ViewOptions) -> None:
    wanted = chosen_format(output.format, json=output.json, possible=("table", "json"))
    if set(output.output or ()) - {STDOUT} or wanted not in {"table", "json"}:
        raise AttnError("--cost: prints a table, or JSON with --json; leave out -o and other formats")
    if view.story:
        raise AttnError("--cost: nothing is computed that could be told; leave out --story")

    # All are made before the first is printed: one that cannot be is said alone.
    for costs in [costs for source in sources for costs in source.costs(wanted_steps(view.step))]:
        if wanted == "json":
            print_json({"steps": {cost.name: cost_data(cost) for cost in costs}})
        else:
            print_cost_table(costs)


def cost_data(cost: Cost) -> dict[str, Any]:
    return {
        "shape": list(cost.shape),
        "bytes": cost.bytes,
        "flops": cost.flops,
        "grows": cost.growth,
        "kept": cost.kept,
    }


def print_cost_table(costs: Sequence[Cost]) -> None:
    from attnctl.drawing.screen.listing import Listing

    titles = [["step", "shape", "grows with", "bytes", "FLOPs"]]
    left_aligned = frozenset({0, 1, 2})
    rows = []
    for cost in costs:
        shape = " × ".join(map(str, cost.shape))
        size = size_text(cost.bytes) if cost.kept else "not kept"
        flops = f"{cost.flops:,}"
        rows.append([(cost.name, "name"), (shape, ""), (cost.growth, "aside"), (size, ""), (flops, "")])

    all_kept = size_text(sum(cost.bytes for cost in costs if cost.kept))
    all_flops = f"{sum(cost.flops for cost in costs):,}"
    rows.append([("in all", ""), ("", ""), ("", ""), (all_kept, ""), (all_flops, "")])
    print_view(lambda screen: Listing(screen, titles, rows, left_aligned).fit(2).lines())


def give(  # noqa: PLR0913  (what was found, and how the answer is given)
    verb: str,
    found: Sequence[Any],
    output: Sequence[str] | None,
    view: Callable[[Screen], Iterable[Element]],
    *,
    json: bool,
    indent: int = 1,
    quiet: bool = False,
    full: bool = False,
    then: Sequence[str] = (),
) -> None:
    """Write what a verb found to the files of -o; on stdout, where it belongs there, as JSON or drawn.

    `then` is the command that goes on from there, which is said on a terminal.
    """
    files, printed = split_outputs(output)
    write_found(verb, found, files)
    if printed and json:
        print_findings(found, indent)
    elif printed and not quiet:
        print_view(with_next(view, then), full=full)


def tell(traces: Sequence[Trace], steps: Sequence[Sequence[str] | None]) -> None:
    """Print the story of each trace, of these `steps` of it if named; on a terminal Enter goes on."""
    from attnctl.verbs.story import story
    from attnctl.verbs.story.view import chapter_lines, opening

    output = output_for(sys.stdout, os.environ)
    screen = screen_of(output)
    stepwise = sys.stdin.isatty() and sys.stdout.isatty()
    for number, trace in enumerate(traces):
        tale = story(trace, steps[number])
        if number:
            print_lines([[]], output)
        print_lines(opening(tale, screen), output)

        for chapter in range(len(tale.chapters)):
            if stepwise and chapter:
                say("", "Enter: next step, q: end", end=" ")
                answer = sys.stdin.readline() or "q"  # nothing at all at the end of the input
                if answer.strip() == "q":
                    return
            print_lines([[], *chapter_lines(tale, chapter, screen)], output)


# --- progress of work that takes longer than half a second: on stderr, and only on a terminal ---


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar once the block has run for a while, until it ends; yields what moves it, (done, total)."""
    bar: Any = None

    def show() -> None:
        nonlocal bar
        from rich.console import Console
        from rich.progress import Progress

        shown = Progress(console=Console(file=sys.stderr, markup=False, emoji=False), transient=True)
        shown.add_task(label, total=None)
        shown.start()
        bar = shown

    def move(done: int, total: int) -> None:
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    if not sys.stderr.isatty():
        yield move
        return
    timer = Timer(0.5, show)  # seconds before a person wonders
    timer.daemon = True
    timer.start()
    try:
        yield move
    finally:
        timer.cancel()
        timer.join()  # a bar that is on its way comes first, to be taken away
        if bar is not None:
            bar.stop()
