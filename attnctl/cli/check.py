"""attnctl check: anyone's dump, recomputed; the first wrong step, and the mistake that explains it."""

# Annotations are types here, which `command` reads: as text, each would be compiled again.
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import strftime
from typing import TYPE_CHECKING

from attnctl import api
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, Exit, raise_all
from attnctl.base.files import STANDARD_INPUT
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.setting import ARRAYS, Given
from attnctl.base.setting import ATTENTION as OF_KIND
from attnctl.base.values import TOLERANCE, whole_number
from attnctl.base.words import plural
from attnctl.cli import look_for_garbage, options
from attnctl.cli.model import IDS, SECTION
from attnctl.cli.options import argument, command, excludes, option
from attnctl.cli.output import give, progress
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import say
from attnctl.drawing.screen.text import shell_line
from attnctl.formats import print_json
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.inputs.config.flags import settings_from
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.record import ATTENTION, Trace, is_unfinished
from attnctl.record.cells import spell_cell
from attnctl.sources import HELP, open_source
from attnctl.sources.dump import flags_meant, settings_over
from attnctl.sources.sentence import Arguments, Source
from attnctl.verbs.check.exercise import read_source
from attnctl.verbs.check.report import CheckedTrace, Judge, Report, StepPlace, agree, check_each
from attnctl.verbs.check.view import lines_of_checked

if TYPE_CHECKING:
    from attnctl.sources.model import Layers
    from attnctl.verbs.check.mend import Mender, Mending
    from attnctl.verbs.check.program import ProgramJudge

ALLOWS = excludes("rtol atol", "--decimals says how far off numbers may be; leave out --rtol and --atol")
ALONE = excludes(
    "json quiet watch model",
    "the change is text on stdout; leave out --json, --quiet, --watch, --model",
)
NOTHING_TO_MEND = {
    True: "Nothing to mend: every attention agrees, and the program stays as it is.",
    None: "Nothing is mended: no step is wrong as far as can be judged, and the program stays as it is.",
}
OF_ATTENTION = " ".join(["config", *settings_with_flags(ARRAYS), *settings_with_flags(OF_KIND)])


class StrictnessOptions(NamedTuple):
    """How far off numbers may be."""

    decimals: int | None = option(
        "The numbers were rounded to N decimals, 0 to 15 (by hand, or when printed).",
        whole_number(0, 15),
        terms=[ALLOWS],
    )
    rtol: float | None = option(
        "Allow numbers to be off by atol + rtol·|expected|. Default: as far as rounding can explain, "
        "given their type and the arithmetic.",
        TOLERANCE,
    )
    atol: float | None = option("See --rtol.", TOLERANCE)


class AnswerOptions(NamedTuple):
    """How the answer is given on stdout."""

    full: options.Full = False
    quiet: options.Quiet = False
    json: bool = option("Print the report as JSON.")


class PortOptions(NamedTuple):
    """The model that was ported, which says what was meant."""

    model: str | None = option(
        "The model that was ported: a folder, a GGUF file, ollama:NAME, or a model id on the hub.",
        metavar="DIR",
        terms=[excludes(OF_ATTENTION, "it says what was meant; leave out the options of attention")],
        section=SECTION,
    )
    adapter: options.Adapter = None
    layer: str | None = option(
        "The layer the arrays come from: 3, -1, decoder.1, cross.1.", metavar="N", section=SECTION
    )
    ids: tuple[int, ...] | None = option(
        "The token ids that were run; layer 0 is then checked from them.",
        IDS,
        terms=[options.needs("model", "add --model DIR")],
        section=SECTION,
    )

    @property
    def is_of_every_layer(self) -> bool:
        return self.model is not None and self.layer is None

    @property
    def name(self) -> str | None:
        """The model with its adapter, as one name."""
        if self.model is None:
            return None
        from attnctl.models.source import join_name

        return join_name(self.model, self.adapter)

    def layers(self) -> "Layers | None":
        if self.name is None:
            return None
        from attnctl.models.run import ModelInput
        from attnctl.sources.model import Layers

        return Layers(self.name, ModelInput(ids=self.ids), self.layer, Settings())


class ProgramOptions(NamedTuple):
    """What is done with a program."""

    watch: bool = option("Check a program again whenever it is saved, until it agrees. Ctrl-C ends.")
    fix: bool = option(
        "Mend a program: changes of it are tried, for a minute at most, and the one with which every "
        "attention agrees is shown, and written.",
        terms=[ALONE, excludes("diff", "--diff shows the change only; leave one out")],
    )
    diff: bool = option("As --fix, and the change is only shown.", terms=[ALONE])
    stdin: str | None = option("What a program reads, as input() does.", metavar="FILE")

    def flags(self) -> dict[str, bool]:
        """Those that are about a program, and whether they are given."""
        return {"--fix": self.fix, "--diff": self.diff, "--stdin": self.stdin is not None}


@dataclass(frozen=True)
class AskedCheck:
    """A check as the command line asks for it, which may be carried out again and again."""

    text: str
    """The SOURCE."""
    beside: Arguments
    config: str | None
    """What was meant; the source itself is read without it."""
    names: Sequence[str]
    """The words of --name."""
    strictness: StrictnessOptions
    answer: AnswerOptions
    port: PortOptions
    program: ProgramOptions
    output: Sequence[str] | None

    def carry_out(self) -> Exit:
        source = self.open_named()
        several = read_source(source)
        files, _ = options.split_outputs(self.output)
        look_for_garbage()
        if self.port.is_of_every_layer:
            return self.check_every_layer(source, several, files)

        of_program = judge_of(source, self.config, self.strictness)
        with progress("checking") as moved:
            judge = self.judge(source, of_program)
            keep = bool(files)  # a page shows all of each
            checked = check_each(several, judge, moved, keep=keep, tell=self.answer.json)

        agrees = verdict_on(source, checked)
        is_mended = of_program is not None and (self.program.fix or self.program.diff)
        tried = None
        if of_program is not None and is_mended and files and agrees is False:
            tried = try_changes(of_program, self.strictness)  # a page shows what was changed
            checked = [with_change(each, tried.mending, written=self.program.fix) for each in checked]

        reports = [checked[0].report] if len(checked) == 1 else checked
        view = partial(lines_of_checked, checked, summary=source.summary)
        give("check", reports, self.output, view, **self.answer._asdict())

        if of_program is not None and is_mended:
            if agrees is not False:
                say("", NOTHING_TO_MEND[agrees])
                return Exit.of(agrees)
            tried = tried or try_changes(of_program, self.strictness)
            return tell_changes(tried, write=self.program.fix)
        return Exit.of(agrees)

    def open_named(self) -> Source:
        """The source. Raises AttnError for options that mean nothing for it."""
        source = open_source(self.text, self.beside, lone_word=False)
        raise_all(source.list_unused({"--trace": self.beside.trace, "--name": self.names or None}, {}))
        refuse_for_source(source, self.program.flags(), self.names)
        return source

    def check_every_layer(self, source: Source, several: Sequence[Trace], files: Sequence[str]) -> Exit:
        raise_all(f"-o {file}: the layers of a model are told on stdout; add --layer N" for file in files)
        trace = several[0] if len(several) == 1 else source.trace()  # which refuses several
        assert self.port.name is not None
        return check_layers(self.port.name, trace, json=self.answer.json, quiet=self.answer.quiet)

    def judge(self, source: Source, of_program: "ProgramJudge | None") -> Judge:
        """What judges a trace of the source, and names the command that explains what is wrong of it."""
        port = self.port.layers()
        if of_program is not None:
            return judge_program(source, of_program)

        def judge(found: Trace, which: str) -> tuple[Report, str]:
            settings = settings_over(found, self.config, self.beside.flags)
            layer = options.layer_number(self.port.layer) if port is None else None
            report = api.check(found, settings, layer=layer, model=port, **self.strictness._asdict())

            places = {find.step: source.place_of(report.trace, find.step) for find in report.findings}
            where = {step: StepPlace(place) for step, place in places.items() if place}
            report = replace(report, places=where)
            if port or self.text == STANDARD_INPUT or is_unfinished(found):
                return report, ""  # no other command reads it again
            return report, explain_command(report, self.words(which), settings)

        return judge

    def words(self, which: str) -> list[str]:
        """How another command names the same trace; `which` picks it from several."""
        words = [f"{self.text}{which}"]
        if self.beside.trace:
            words += ["--trace", self.beside.trace]
        for pair in self.names:
            words += ["--name", pair]
        return words


@command(
    "attnctl check homework.py",
    "attnctl check homework.py --diff",
    "attnctl check dump.json",
    "attnctl check theirs.npz --heads 2 --causal --name query=Q --name key=K --name value=V",
    "attnctl check handed-in.json --decimals 2 --quiet && echo right",
    "attnctl check --about softmax-over-queries",
)
def check(  # noqa: PLR0913  (groups of options)
    *,
    source: str | None = argument(HELP, "SOURCE"),
    strictness: StrictnessOptions,
    answer: AnswerOptions,
    about: str | None = option(
        "Explain a mistake instead: why people make it, the fix, an example.",
        metavar="NAME",
        terms=[excludes("source", "a page on a mistake needs no SOURCE; leave it out")],
    ),
    trace: options.Trace = None,
    name: options.Name = None,
    layout: options.Arrays,
    config: options.Config = None,
    attention: options.Attention,
    port: PortOptions,
    program: ProgramOptions,
    max_memory: options.Memory = None,
    output: list[str] | None = options.findings_option("check"),
) -> Exit:
    """Recompute every step of a dump or a program; name the first wrong one and the mistake behind it.

    A dump written by attnctl records how each step was computed. Arrays of another program are recognized
    by our names (Q, K, V, scores, attention_weights, head_outputs, output, …; some are enough), by those
    of torch and Hugging Face models, and by common variable names; the options for attention, or a config,
    say what was intended. Options also override what a dump of attnctl records.

    A program (FILE.py, or a notebook) is run, in a process of its own, and every attention in it is read by
    what it computes, whatever its variables are called; what is wrong is shown at its expression. With
    --fix it is mended, where a small change of its text makes every attention agree: each that is tried
    runs as the program did, and the file is written only after that. --diff writes nothing.

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

        explain_mistake(about, json=answer.json)
        return Exit.OK
    if source is None:
        raise AttnError("no SOURCE; give one, or --about MISTAKE")

    names = name or []
    beside = Arguments(
        flags={**layout, **attention},
        trace=trace,
        rename=options.renames(names),
        stdin=program.stdin or "",
    )
    asked = AskedCheck(
        text=source,
        beside=beside,
        config=config,
        names=names,
        strictness=strictness,
        answer=answer,
        port=port,
        program=program,
        output=output,
    )
    return watching(source, asked.carry_out) if program.watch else asked.carry_out()


def verdict_on(source: Source, checked: Sequence[CheckedTrace]) -> bool | None:
    """Whether all of it agrees; None, too, where something in it could not be judged at all."""
    agrees = agree(checked)
    if agrees and not source.is_judged_whole:
        return None
    return agrees


def refuse_for_source(source: Source, of_program: Mapping[str, bool], name: Sequence[str] | None) -> None:
    """Raise AttnError for what is said of a program where it is none, and the other way round."""
    if source.is_program and name:
        raise AttnError("--name: a program is read by what it computes, not by names; leave it out")
    raise_all(
        f"{flag}: it is about a program; give a FILE.py"
        for flag, is_said in of_program.items()
        if is_said and not source.is_program
    )


def judge_of(source: Source, config: str | None, strictness: StrictnessOptions) -> "ProgramJudge | None":
    """What judges the attentions of a program, as the command line asks; None of other sources."""
    if not source.is_program:
        return None
    from attnctl.sources.program import Script
    from attnctl.verbs.check.program import ProgramJudge, over_shown

    assert isinstance(source, Script)

    def make_settings(shown: Given) -> Settings:
        return settings_from(config, over_shown(shown, source.beside.flags))

    def check_arrays(arrays: Mapping[str, Array], settings: Settings) -> Report:
        return api.check(arrays, settings, **strictness._asdict())

    return ProgramJudge(source.program, check_arrays, make_settings)


def judge_program(source: Source, of_program: "ProgramJudge") -> Judge:
    """What judges an attention of a program, where it stands."""

    def judge(found: Trace, which: str) -> tuple[Report, str]:
        steps = of_program.program.steps[found.header[ATTENTION]["number"]]
        report = of_program.judge(steps).report
        header = {**report.trace.header, ATTENTION: found.header[ATTENTION]}
        report = report.with_header(header)
        return replace(report, notes=(*report.notes, *source.notes)), ""

    return judge


class TriedChanges(NamedTuple):
    """What came of trying changes of a program, and who tried them."""

    mender: "Mender"
    mending: "Mending"


def try_changes(judge: "ProgramJudge", strictness: StrictnessOptions) -> TriedChanges:
    """Try changes of a wrong program; its files stay as they are."""
    from attnctl.verbs.check.mend import Mender

    mender = Mender(judge, strictness._asdict())
    with progress("mending"):
        return TriedChanges(mender, mender.mend())


def with_change(checked: CheckedTrace, mending: "Mending", *, written: bool) -> CheckedTrace:
    """What was checked, beside what its program reads with the one change that makes it agree."""
    report = checked.report
    if mending.reason or report is None or report.program is None:
        return checked
    (texts,) = mending.agreeing
    mended = {mending.names[path]: text for path, text in texts.items()}
    listing = replace(report.program, mended=mended, is_written=written)
    return replace(checked, report=replace(report, program=listing))


def tell_changes(changes: TriedChanges, *, write: bool) -> Exit:
    """Show the change with which everything agrees, and write it."""
    mender, mending = changes
    for diff in mending.diffs():
        say("", *(line.rstrip("\r") for line in diff.split("\n")[:-1]))

    tried = f"({plural(mending.tried, 'change')} tried)"
    if mending.reason:
        say("", f"Not mended: {mending.reason} {tried}.")
        return Exit.of(False)
    done = "not written; --fix writes it"
    if write:
        mending.write()
        mender.leave_files_as_it_stands()
        done = "written"
    say("", f"With this the program runs, and every attention in it agrees: {done} {tried}.")
    return Exit.of(write)


def watching(path: str, once: Callable[[], Exit]) -> Exit:
    """Check a program now, and whenever it is saved, until it agrees. Raises AttnError for other files."""
    from attnctl.sources.program.run import look_again

    if not path.endswith((".py", ".ipynb")):
        raise AttnError("--watch: only a program is checked again; give a FILE.py")
    for _ in look_again(path):
        say("", f"{path}, {strftime('%H:%M:%S')}")
        try:
            if once() == Exit.OK:
                break
        except AttnError as error:
            complain(*error.problems)
    return Exit.OK


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
        for layer in checked:
            verdict = "agrees" if layer.agrees else "WRONG"
            where = ", ".join(map(str, layer.at))
            off = f"off by {layer.largest:.3g} at [{where}], allowed {layer.allowed:.3g}"
            if layer.beyond > 1:
                off += f"; all numbers together {layer.beyond:.3g} times what rounding explains"
            say(f"layer {layer.layer}: {verdict}, {off}")
        if wrong:
            more = "Dump a few arrays of it (hidden, X, Q, K, attention_weights, output) and add --layer"
            say("", f"Layer {wrong[0].layer} is the first wrong one. {more} {wrong[0].layer}.")
    return Exit.of(not wrong)
