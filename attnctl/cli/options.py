"""Options of the commands: Typer takes their text, `base.values` reads it, all problems at once.

An option is a parameter `name: Annotated[type, option(help, …), reader]`; one without a reader is
text, or on and off. Options that several commands share are named tuples, or come from the table of
settings: a command takes such a group whole, as one parameter.
"""

# Typer reads these annotations as types: written as text, each would be compiled again.
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from typer.models import ArgumentInfo

from attnctl.base.errors import AttnError, Exit, PipeClosed, raise_all
from attnctl.base.files import announce_output
from attnctl.base.setting import ARRAYS, ATTENTION, EDIT, GRADIENTS, SENTENCE, Given, Setting
from attnctl.base.values import MOST, BadValueError, Plain, Reader, whole, words
from attnctl.base.words import one_of, quote
from attnctl.cli.app import Command
from attnctl.formats import FINDINGS, FORMATS, Format, is_picture, unwritable
from attnctl.inputs.config.fields import is_given, settings_with_flags

STDOUT = "-"
"""As a file to write: standard output, in the format that is asked for there."""

FORMAT_VARIABLE = "ATTNCTL_FORMAT"
FORMAT_NAMES = ("table", *(each.name for each in FORMATS if not (each.binary or each.picture)))
"""How a trace is written on stdout."""

PRECISION = whole(0, 17)


class OptionTerm(NamedTuple):
    """What an option goes with: the options that are wrong beside it, and what is said of each."""

    wrong: Callable[[Given], Iterable[str]]
    """Their names, "" for the option itself; of everything that the command was given, by name."""

    words: str
    """What stands behind `--flag: `, or a whole message, which begins with a flag; {name} is a value."""


def needs(others: str, words: str) -> OptionTerm:
    """The term of an option that means something only beside one of these, by their names."""
    names = others.split()
    return OptionTerm(lambda given: () if any(is_asked(given, name) for name in names) else ("",), words)


def excludes(others: str, words: str) -> OptionTerm:
    """The term of an option that means nothing beside any of these, by their names."""
    names = others.split()
    return OptionTerm(lambda given: ("",) * any(is_asked(given, name) for name in names), words)


def bars(others: Iterable[str], words: str) -> OptionTerm:
    """The term of an option beside which these mean nothing; it is said of each of them."""
    names = tuple(others)
    return OptionTerm(lambda given: asked_of(given, names), words)


def only(holds: Callable[[Given], bool], words: str) -> OptionTerm:
    """The term of an option that means something only where this holds."""
    return OptionTerm(lambda given: () if holds(given) else ("",), words)


def is_asked(given: Given, name: str) -> bool:
    """True where an option, or an argument, of this name is given."""
    return is_given(given.get(name)) and given[name] != []


def asked_of(given: Given, names: Iterable[str]) -> list[str]:
    """Those of these options that are given."""
    return [name for name in names if is_asked(given, name)]


def option(
    help: str,  # noqa: A002  (Typer's own word)
    *names: str,
    terms: Sequence[OptionTerm] = (),
    writes: Sequence[Format] | bool = False,
    **extra: Any,
) -> Any:
    """A Typer option with its help, on these terms.

    One that `writes` names files to be written, - for stdout: in these formats by suffix, or any.
    """
    info = typer.Option(*names, help=help, show_default=False, **extra)
    info.terms, info.writes = terms, writes
    return info


def read_size(text: str) -> int:
    """Bytes, from a text like 512M."""
    from attnctl.math.engine.cost import parse_size

    return parse_size(text)


MOST_HEADS = 9999
"""The highest number of a head, and how many are named at once."""


def read_heads(text: str) -> tuple[int, ...]:
    """'0,2' -> (0, 2); '0-3' -> (0, 1, 2, 3)."""
    heads: list[int] = []
    for part in text.split(","):
        ends = [Plain(end.strip()) for end in part.strip().split("-")]
        if len(ends) != 2 or not all(ends):  # -1 and 0- are no ranges
            ends = [Plain(part.strip())]
        first, last = (whole(0, MOST_HEADS)(end) for end in (ends[0], ends[-1]))
        if first > last:
            raise BadValueError(f"{first}-{last} runs backwards; write {last}-{first}")
        heads += range(first, last + 1)
        if len(heads) > MOST_HEADS + 1:
            raise BadValueError(f"more than {MOST_HEADS + 1} heads; leave it out to see all")
    return tuple(dict.fromkeys(heads))


BYTES = Reader(read_size, {}, "SIZE")
HEADS = Reader(read_heads, {}, "N,…")

ArrayOptions = Annotated[Given, settings_with_flags(ARRAYS)]
AttentionOptions = Annotated[Given, settings_with_flags(ATTENTION)]
SentenceOptions = Annotated[Given, settings_with_flags(SENTENCE)]
GradientOptions = Annotated[Given, settings_with_flags(GRADIENTS)]
EditOptions = Annotated[Given, settings_with_flags(EDIT)]
ConfigOption = Annotated[
    str | None,
    option("A YAML config (attnctl config init writes one).", "--config", "-c", metavar="FILE"),
]
TraceOption = Annotated[
    str | None,
    option(
        "Which trace of a file of several, by number from 0 or by sentence; FILE[N] says the same.",
        "--trace",
        metavar="N",
    ),
]
NameOption = Annotated[
    list[str] | None,
    option("An array of the file under another name; may be repeated.", "--name", metavar="THEIRS=OURS"),
]

LayerOption = Annotated[
    int | None,
    option("The layer to read of a state dict with several, from 0.", "--layer", metavar="N"),
    whole(0, MOST),
]


def layer_number(text: str | None) -> int | None:
    """The layer of a state dict that --layer names. Raises AttnError for what is no number."""
    try:
        return None if text is None else whole(0, MOST)(Plain(text))
    except BadValueError as wrong:
        raise AttnError(f"--layer: {what}" for _, what in wrong.problems) from None


def findings_option(verb: str, *, checked: bool = True) -> Any:
    """The option -o of a verb that finds something: a list of files, whose suffixes are checked."""
    suffixes = " ".join(each.suffix for each in FINDINGS[verb])
    return option(
        f"Write what was found to FILE instead of stdout, by suffix: {suffixes}; - is stdout. "
        "May be given more than once.",
        "--output",
        "-o",
        metavar="FILE",
        writes=FINDINGS[verb] if checked else True,
    )


MemoryOption = Annotated[
    int | None,
    option("Refuse what needs more memory than this, like 512M or 8G (most of what is free)."),
    BYTES,
]
"""`command` holds to it what is read; a command need not look at it."""


FullOption = Annotated[bool, option("Leave nothing out on a terminal, however long.", "--full")]
QuietOption = Annotated[
    bool,
    option(
        "Print nothing; the exit code tells.",
        "--quiet",
        "-q",
        terms=[excludes("json", "--quiet prints nothing; leave it out to have --json")],
    ),
]


class CostOptions(NamedTuple):
    """The memory a run may take, and whether to print its cost instead."""

    max_memory: MemoryOption = None
    cost: Annotated[
        bool, option("Print each step's shape, bytes and operations instead of running.", "--cost")
    ] = False


TOLD = excludes("story", "only tables and pictures have that; leave it out with --story")
TABLES = only(lambda given: shown_as(given) == "table", "only tables have that")
DIGITS = only(
    lambda given: shown_as(given) in {"table", "pictures"},
    "only tables and pictures have that; a dump keeps every digit",
)
DRAWN = only(
    lambda given: shown_as(given) == "pictures" or (given["heat"] and shown_as(given) == "table"),
    "only pictures and heat maps have that; write -o picture.svg, or add --heat",
)
NO_NUMBERS = excludes("heat", "a heat map has no numbers")
PRINTED = only(
    lambda given: shown_as(given) == "table", "it is text on stdout; leave out other formats and -o"
)


class ViewOptions(NamedTuple):
    """The part of a trace to show, and its form."""

    step: Annotated[
        str | None, option("Only these steps, by name, separated by commas.", metavar="NAME,…")
    ] = None
    head: Annotated[
        tuple[int, ...] | None,
        option("Only these heads, from 0, like 0,2 or 0-3.", terms=[TOLD]),
        HEADS,
    ] = None
    precision: Annotated[
        int | None,
        option(
            "Digits after the point, 0 to 17: 4 in tables, 2 in pictures. (The other formats keep every "
            "digit.)",
            terms=[TOLD, DIGITS, NO_NUMBERS],
        ),
        PRECISION,
    ] = None
    brief: Annotated[bool, option("Attention weights and output only.", "--brief")] = False
    full: Annotated[
        bool,
        option(
            "One step below the other, nothing left out, however large. (Tables.)",
            "--full",
            terms=[TOLD, TABLES, NO_NUMBERS],
        ),
    ] = False
    heat: Annotated[
        bool, option("Draw heat maps instead of numbers. (Tables.)", "--heat", terms=[TOLD, TABLES])
    ] = False
    log: Annotated[
        bool,
        option(
            "Colour by the logarithm of the numbers. (Pictures and heat maps.)",
            "--log",
            terms=[TOLD, DRAWN],
        ),
    ] = False
    without_first: Annotated[
        bool,
        option(
            "Leave out the first key, which often drowns the others. (Pictures and heat maps.)",
            "--without-first",
            terms=[TOLD, DRAWN],
        ),
    ] = False
    story: Annotated[
        bool,
        option(
            "Tell it in sentences, a step at a time; on a terminal Enter goes on, q ends.",
            "--story",
            terms=[PRINTED],
        ),
    ] = False


class OutputOptions(NamedTuple):
    """The format and the files a trace is written to."""

    format: Annotated[
        str | None,
        option(f"How to write it on stdout. Left out, what {FORMAT_VARIABLE} says, or table."),
        words(*FORMAT_NAMES),
    ] = None
    json: Annotated[
        bool,
        option(
            "Short for --format json: an object for one sentence, an array of them for several "
            "(--format jsonl writes a line each, however many).",
            "--json",
        ),
    ] = False
    output: Annotated[
        list[str] | None,
        option(
            f"Write to FILE instead of stdout, by suffix: {' '.join(each.suffix for each in FORMATS)}; "
            "- is stdout. May be given more than once.",
            "--output",
            "-o",
            metavar="FILE",
            writes=FORMATS,
        ),
    ] = None

    @classmethod
    def of(cls, **values: Any) -> "OutputOptions":
        """The options as they were read. Raises AttnError where there is no telling the format."""
        chosen_format(values["format"], json=values["json"])
        return cls(**values)


def shown_as(given: Given) -> str:
    """The form that traces get: table on stdout alone, pictures in files alone, or data."""
    files, printed = split_outputs(given["output"])
    if printed:
        wanted = chosen_format(given["format"], json=given["json"])
        return "table" if wanted == "table" and not files else "data"
    return "pictures" if all(map(is_picture, files)) else "data"


def split_outputs(outputs: Sequence[str] | None) -> tuple[list[str], bool]:
    """The files of -o, and whether stdout has it, too: - or nothing is named."""
    return [path for path in outputs or () if path != STDOUT], not outputs or STDOUT in outputs


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


SECTIONS = {CostOptions: "Memory and cost", ViewOptions: "What to show", OutputOptions: "Output"}
"""Where the help of these options stands; others come first, those of settings in their own sections."""


class Option(NamedTuple):
    """One option of a command: the parameter that Typer sees, and what reads its value."""

    parameter: Parameter
    read: Callable[[Any], Any]

    @property
    def flag(self) -> str:
        """The flag that messages use: --d-model, or its shortest name: -o; of an argument what help has."""
        info = self.parameter.annotation.__metadata__[0]
        if isinstance(info, ArgumentInfo):
            return info.metavar or self.parameter.name.upper()
        names = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
        return min(names, key=len, default=f"--{self.parameter.name.replace('_', '-')}")

    def announce(self, value: str | list[str]) -> Iterator[str]:
        """Say which files are to be written, where it names such; a problem for each that cannot be."""
        writes = getattr(self.parameter.annotation.__metadata__[0], "writes", False)
        if not writes:
            return
        files = [path for path in ([value] if isinstance(value, str) else value) if path != STDOUT]
        for path in files:
            announce_output(path, self.flag)
        yield from () if writes is True else unwritable(files, writes)

    def wrong_beside(self, given: Given, flags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The options that do not go with it, by name, and what is said of each."""
        name = self.parameter.name
        terms = getattr(self.parameter.annotation.__metadata__[0], "terms", ())
        for term in terms if is_asked(given, name) else ():
            for other in term.wrong(given):
                wrong = other or name
                words = term.words.format_map(given)
                yield wrong, words if words.startswith("-") else f"{flags[wrong]}: {words}"


class OptionGroup(NamedTuple):
    """The options that one parameter of a command stands for, and what makes its argument of them."""

    options: list[Option]
    gather: Callable[[Given], Any]

    def argument(self, values: Given) -> Any:
        """Its argument, of the values of every option of the command."""
        names = [each.parameter.name for each in self.options]
        return self.gather({name: values[name] for name in names})


def command(app: typer.Typer, *examples: str) -> Callable[[Callable[..., Exit | None]], Callable[..., int]]:
    """Make a function a command of the app; each of its groups of options becomes many options.

    The examples are lines of shell for the end of its help.
    """

    def register(function: Callable[..., Exit | None]) -> Callable[..., int]:
        # Not get_type_hints: in Python 3.10 it hides Annotated[…] in an Optional where the default is None.
        parameters = signature(function, eval_str=True).parameters
        groups = {name: group_of(parameter) for name, parameter in parameters.items()}
        options = [each for group in groups.values() for each in group.options]

        @wraps(function)
        def run(**texts: Any) -> int:
            values = read_all(options, texts)
            given = {name: group.argument(values) for name, group in groups.items()}
            try:
                with memory_held_to(values.get("max_memory")):
                    return int(function(**given) or Exit.OK)
            except BrokenPipeError as error:
                raise PipeClosed from error

        run.__signature__ = Signature([each.parameter for each in options])  # type: ignore[attr-defined]
        run.__annotations__ = {each.parameter.name: each.parameter.annotation for each in options}
        app.command(cls=Command, epilog="\n".join(examples))(run)
        return run

    return register


def memory_held_to(limit: int | None) -> AbstractContextManager[None]:
    if limit is None:
        return nullcontext()
    from attnctl.math.engine.cost import limit_memory

    return limit_memory(limit)


def group_of(parameter: Parameter) -> OptionGroup:
    """A named tuple of options, the settings of a section, or one option by itself."""
    annotation = parameter.annotation
    if isinstance(annotation, type):
        return tuple_group(annotation)
    first = annotation.__metadata__[0]
    if isinstance(first, dict):
        return OptionGroup([setting_option(*each) for each in first.items()], only_given)
    option = typed_option(parameter.name, annotation, parameter.default)
    return OptionGroup([option], lambda values: values[parameter.name])


def tuple_group(kind: Any) -> OptionGroup:
    """The options that the fields of a named tuple describe."""
    hints, section = get_type_hints(kind, include_extras=True), SECTIONS.get(kind)
    options = [
        typed_option(name, hints[name], each, section) for name, each in kind._field_defaults.items()
    ]
    make = getattr(kind, "of", kind)
    return OptionGroup(options, lambda values: make(**values))


def only_given(values: Given) -> Given:
    """The settings that are asked for."""
    return {name: value for name, value in values.items() if is_given(value)}


def typed_option(name: str, annotation: Any, default: Any, section: str | None = None) -> Option:
    """The option of an annotation `Annotated[type, info, reader]`; Typer takes its text."""
    info, *readers = annotation.__metadata__
    info.rich_help_panel = section
    if not readers:
        return Option(keyword(name, annotation, default), lambda value: value)
    info.metavar = info.metavar or readers[0].metavar
    return Option(keyword(name, Annotated[str | None, info], default), lambda text: readers[0](Plain(text)))


def setting_option(name: str, setting: Setting) -> Option:
    """The option of a setting."""
    flag = setting.flag
    assert flag is not None
    kind: Any = bool if setting.switch else list[str] | None if flag.repeated else str | None
    metavar = None if setting.switch else flag.metavar or setting.reader.metavar
    info = option(
        f"{setting.help} {flag.more}".rstrip(), flag.name, metavar=metavar, rich_help_panel=flag.group
    )
    default = False if setting.switch else None
    return Option(keyword(name, Annotated[kind, info], default), setting.read_flag)


def keyword(name: str, annotation: Any, default: Any) -> Parameter:
    """A parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def read_all(options: list[Option], texts: Given) -> Given:
    """The value of every option that is given.

    Raises AttnError with every problem: of each value, and of options that do not go with others.
    """
    values: Given = {}
    problems: list[str] = []
    for option in options:
        name = option.parameter.name
        values[name] = texts[name]
        if texts[name] is not None:
            try:
                values[name] = option.read(texts[name])
                problems += option.announce(texts[name])
            except BadValueError as wrong:
                problems += (f"{option.flag}: {text}" for _, text in wrong.problems)
            except AttnError as error:
                problems += error.problems
    flags = {option.parameter.name: option.flag for option in options}
    misplaced: dict[str, str] = {}
    for option in options:
        for name, problem in option.wrong_beside(values, flags):
            misplaced.setdefault(name, problem)
    raise_all([*problems, *(misplaced[name] for name in flags if name in misplaced)])
    return values


def renames(pairs: list[str], flag: str = "--name") -> dict[str, str]:
    """['theirs=ours', …] -> {theirs: ours}."""
    parts = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (theirs, _, ours) in zip(pairs, parts, strict=True) if not (theirs and ours)]
    if wrong:
        raise AttnError([f"{flag}: {pair!r} is not THEIRS=OURS; write it like query=Q" for pair in wrong])
    return {theirs: ours for theirs, _, ours in parts}
