"""Options of the commands: `command.py` takes their text, `base.values` reads it, all problems at once.

An option is a parameter `name: type = option(help, reader, …)`; one without a reader is text, or on and
off. What several commands share is a type: one option, a named tuple of them, or settings of the table,
which a command takes whole, as one parameter.
"""

# `command` reads these annotations as types: written as text, each would be compiled again.
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from attnctl.base.errors import AttnError, Exit, PipeClosed, raise_all
from attnctl.base.files import announce_output
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.rooms import formats_of
from attnctl.base.setting import ARRAYS, ATTENTION, EDIT, GRADIENTS, SENTENCE, Given, Setting
from attnctl.base.values import HEADS, MOST, BadValueError, Plain, Reader, whole_number, words
from attnctl.base.words import one_of, quote
from attnctl.cli.command import Declared, Option, OptionTerm, Registered
from attnctl.formats import (
    FORMATS,
    NOTATIONS,
    WRITABLE,
    Format,
    is_notation,
    is_picture,
    unwritable,
)
from attnctl.inputs.config.fields import is_given, settings_with_flags
from attnctl.math.names import SYMBOLS

STDOUT = "-"  # as a file to write: standard output, in the format that is asked for there
FORMAT_VARIABLE = "ATTNCTL_FORMAT"
FORMAT_NAMES = ("table", *(fmt.name for fmt in FORMATS if not (fmt.binary or fmt.picture)))
"""How a trace is written on stdout."""

NOTATION_NAMES = tuple(fmt.name for fmt in NOTATIONS)
NOT_WRITTEN = "no FILE of -o has its suffix; name one, or none"

PRECISION = whole_number(0, 17)

BY_WORKERS = (
    "{} by workers: processes=N, dask[=ADDRESS] or ray[=ADDRESS]; without an address by a cluster on this "
    "machine that ends with the command."
)


def only(holds: Callable[[Given], object], words: str) -> OptionTerm:
    """The term of an option that means something only where this holds."""
    return OptionTerm(lambda given: () if holds(given) else ("",), words)


def needs(others: str, words: str) -> OptionTerm:
    """The term of an option that means something only beside one of these, by their names."""
    return only(lambda given: asked_of(given, others.split()), words)


def excludes(others: str, words: str) -> OptionTerm:
    """The term of an option that means nothing beside any of these, by their names."""
    return only(lambda given: not asked_of(given, others.split()), words)


def bars(others: Iterable[str], words: str) -> OptionTerm:
    """The term of an option beside which these mean nothing; it is said of each of them."""
    return OptionTerm(lambda given: asked_of(given, others), words)


def asked_of(given: Given, names: Iterable[str]) -> list[str]:
    return [name for name in names if is_asked(given, name)]


def is_asked(given: Given, name: str) -> bool:
    return is_given(given.get(name)) and given[name] != []


def option(
    help: str,  # noqa: A002  (the word that everybody has for it)
    *how: Reader | str,
    metavar: str | None = None,
    terms: Sequence[OptionTerm] = (),
    writes: Sequence[Format] | bool = False,
    section: str | None = None,
    default: Any = None,
) -> Any:
    """An option with its help, on these terms, in this section of the help.

    `how` is what reads its text, if anything does, and its names, where the parameter's is none. One that
    `writes` names files to be written, - for stdout: in these formats by suffix, or any.
    """
    return Declared(
        help,
        flags=[flag for flag in how if isinstance(flag, str)],
        readers=[reader for reader in how if isinstance(reader, Reader)],
        metavar=metavar,
        section=section,
        terms=terms,
        writes=writes,
        usual=default,
    )


def argument(help: str, metavar: str | None = None, terms: Sequence[OptionTerm] = ()) -> Any:  # noqa: A002
    """An argument, which may be left out where the type of its parameter has None."""
    return Declared(help, metavar=metavar, terms=terms, is_argument=True)


def suffixes(formats: Sequence[Format]) -> str:
    return " ".join(dict.fromkeys(fmt.suffix for fmt in formats))


def output_option(
    help: str,  # noqa: A002
    writes: Sequence[Format] | bool = True,
    **more: Any,
) -> Any:
    return option(help, "--output", "-o", metavar="FILE", writes=writes, **more)


def read_size(text: str) -> int:
    from attnctl.math.engine.cost import parse_size

    return parse_size(text)


BYTES = Reader(read_size, {}, "SIZE")
LAYER = whole_number(0, MOST)

Arrays = Annotated[Given, settings_with_flags(ARRAYS)]
Attention = Annotated[Given, settings_with_flags(ATTENTION)]
Sentence = Annotated[Given, settings_with_flags(SENTENCE)]
Gradients = Annotated[Given, settings_with_flags(GRADIENTS)]
Edits = Annotated[Given, settings_with_flags(EDIT)]
Config = Annotated[
    str | None, option("A YAML config (attnctl config init writes one).", "--config", "-c", metavar="FILE")
]
Trace = Annotated[
    str | None,
    option(
        "Which trace of a file with several, by number from 0 or by sentence; FILE[N] does the same.",
        "--trace",
        metavar="N",
    ),
]
Name = Annotated[
    list[str] | None,
    option(
        "Read an array of the file under another name; may be repeated.", "--name", metavar="THEIRS=OURS"
    ),
]

OF_A_MODEL = "A trained model"
"""The section of help that options of a model stand in."""

Adapter = Annotated[
    str | None,
    option(
        "A LoRA adapter of --model: the folder that PEFT's save_pretrained wrote, or the id of one.",
        "--adapter",
        metavar="DIR",
        terms=[needs("model", "--adapter changes a model; add --model DIR")],
        section=OF_A_MODEL,
    ),
]


def read_late(flag: str, reader: Reader, text: str | None) -> Any:
    """The value of an option that is a text until others say what it means. Raises AttnError."""
    try:
        return None if text is None else reader(Plain(text))
    except BadValueError as wrong:
        raise AttnError(f"{flag}: {what}" for _, what in wrong.problems) from None


layer_number = partial(read_late, "--layer", LAYER)


def findings_option(verb: str, *, checked: bool = True) -> Any:
    """The option -o of a verb that finds something: a list of files, whose suffixes are checked."""
    return output_option(
        f"Write the result to FILE, its format from the extension: {suffixes(formats_of(verb))}; "
        "- is stdout. May be given more than once.",
        formats_of(verb) if checked else True,
    )


TO_RUN = "Memory and cost"
TOO_MUCH = (
    "Refuse to start if more memory than this is needed, like 512M or 8G (default: most of what is free)."
)
Memory = Annotated[int | None, option(TOO_MUCH, BYTES)]
"""`command` holds to it what is read; a command need not look at it."""

MemoryToRun = Annotated[int | None, option(TOO_MUCH, BYTES, section=TO_RUN)]
Cost = Annotated[
    bool,
    option("Print the shape, memory and operations of each step instead of running it.", section=TO_RUN),
]

Full = Annotated[bool, option("Show everything, however long. (Terminals only.)")]
Quiet = Annotated[
    bool,
    option(
        "Print nothing; use the exit code.",
        "--quiet",
        "-q",
        terms=[excludes("json", "--quiet prints nothing; leave it out to have --json")],
    ),
]

TOLD = excludes("story", "only tables and pictures have that; leave it out with --story")


TABLES = only(lambda given: shown_as(given) == "table", "only tables have that")
PRINTED = TABLES._replace(words="it is text on stdout; leave out other formats and -o")
DIGITS = only(
    lambda given: shown_as(given) != "data", "only tables and pictures have that; a dump keeps every digit"
)
DRAWN = only(
    lambda given: shown_as(given) in {"pictures", "table" if given["heat"] else ""},
    "only pictures and heat maps have that; write -o picture.svg, or add --heat",
)
NO_NUMBERS = excludes("heat", "a heat map has no numbers")


class ViewOptions(NamedTuple):
    step: str | None = option("Only these steps, by name, separated by commas.", metavar="NAME,…")
    head: tuple[int, ...] | None = option("Only these heads, from 0, like 0,2 or 0-3.", HEADS, terms=[TOLD])
    precision: int | None = option(
        "Decimals, 0 to 17; default: 4 in tables, 2 in pictures. (Other formats keep every digit.)",
        PRECISION,
        terms=[TOLD, DIGITS, NO_NUMBERS],
    )
    brief: bool = option("Attention weights and output only.")
    full: bool = option(
        "One step below the other, with nothing left out. (Tables only.)", terms=[TOLD, TABLES, NO_NUMBERS]
    )
    heat: bool = option("Draw heat maps instead of numbers. (Tables only.)", terms=[TOLD, TABLES])
    log: bool = option(
        "Colour by the logarithm of the numbers. (Pictures and heat maps only.)", terms=[TOLD, DRAWN]
    )
    without_first: bool = option(
        "Leave out the first key, which often outshines the others. (Pictures and heat maps only.)",
        terms=[TOLD, DRAWN],
    )
    query: str | None = option(
        "Of a picture: the token whose weights are laid over it, like r3c5, [CLS], a number, or mean. "
        "(Pictures and pages only.)",
        metavar="TOKEN",
        terms=[TOLD],
    )
    grid: str | None = option(
        "Keys are the patches of a picture, so many rows and columns (from key N on, or the last), and "
        "weights are laid over it. (Pictures and pages only.)",
        metavar="24x24[@N]",
        terms=[TOLD],
    )
    picture: str | None = option(
        "The picture that --grid is of, drawn under the weights.",
        metavar="FILE",
        terms=[needs("grid", "a picture has patches; say which keys they are: --grid 24x24")],
    )
    story: bool = option(
        "Explain the run in sentences, step by step; on a terminal Enter continues and q quits.",
        terms=[PRINTED],
    )


class OutputOptions(NamedTuple):
    format: str | None = option(
        f"The format on stdout; default: ${FORMAT_VARIABLE}, or table.", words(*FORMAT_NAMES)
    )
    json: bool = option(
        "Short for --format json: an object for one sentence, an array of them for several "
        "(--format jsonl writes a line each, however many)."
    )
    output: list[str] | None = output_option(
        f"Write to FILE, its format from the extension: {suffixes(WRITABLE)}; "
        "- is stdout. May be given more than once.",
        WRITABLE,
    )
    notation: str | None = option(
        f"Write what is shown as {one_of(NOTATION_NAMES)}: on stdout, or to a FILE of -o "
        f"({suffixes(NOTATIONS)}).",
        words(*NOTATION_NAMES),
        "--as",
        metavar="NAME",
        terms=[
            excludes("json format", "that is another format; leave one of them out"),
            bars(("story", "heat", "full", "cost", "lens"), "means nothing with --as; leave it out"),
            only(lambda given: is_written(given), NOT_WRITTEN),  # noqa: PLW0108  (it stands below)
        ],
    )

    @classmethod
    def of(cls, **values: Any) -> "OutputOptions":
        """The options as they were read. Raises AttnError where there is no telling the format."""
        chosen_format(values["format"], json=values["json"])
        return cls(**values)


def shown_as(given: Given) -> str:
    """The form that traces get: table on stdout alone, pictures in files alone, a notation, or data."""
    files, printed = split_outputs(given["output"])
    notation = given.get("notation")
    if all(is_notation(path, notation) for path in files) and (notation or not printed):
        return "notation"
    if printed:
        wanted = chosen_format(given["format"], json=given["json"])
        return "table" if wanted == "table" and not files else "data"
    return "pictures" if all(map(is_picture, files)) else "data"


def is_written(given: Given) -> bool:
    """True where what --as names goes to stdout or to a file."""
    files, printed = split_outputs(given["output"])
    own = tuple(fmt.suffix for fmt in NOTATIONS if fmt.name == given["notation"])
    return printed or any(path.endswith(own) for path in files)


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
    if usual and usual not in {*FORMAT_NAMES, *(fmt.name for fmt in FORMATS)}:
        raise AttnError(f"{FORMAT_VARIABLE}: {quote(usual)} is no format; use {one_of(FORMAT_NAMES)}")
    return usual if usual in possible else "table"


SECTIONS = {ViewOptions: "What to show", OutputOptions: "Output"}
"""The section of the help where these groups stand; a setting, or an option by itself, says its own."""


def command(
    *examples: str, of_program: bool = False
) -> Callable[[Callable[..., Exit | None]], Callable[..., int]]:
    """Make a function one of its module's COMMANDS; each group of its options becomes many options.

    The examples are lines of shell for the end of its help. What follows its first argument are no options
    where it is that `of_program`.
    """

    def register(function: Callable[..., Exit | None]) -> Callable[..., int]:
        # Not get_type_hints: in Python 3.10 it hides Annotated[…] in an Optional where the default is None.
        declared = signature(function, eval_str=True).parameters
        groups = {name: group_of(parameter) for name, parameter in declared.items()}
        options = [option for group, _ in groups.values() for option in group]

        @wraps(function)
        def run(**texts: Any) -> int:
            values = read_all(options, texts)
            given = {
                name: gather({member.name: values[member.name] for member in group})
                for name, (group, gather) in groups.items()
            }
            try:
                with ExitStack() as stack:
                    if (limit := values.get("max_memory")) is not None:
                        from attnctl.math.engine.cost import limit_memory

                        stack.enter_context(limit_memory(limit))
                    return int(function(**given) or Exit.OK)
            except BrokenPipeError as error:
                raise PipeClosed from error

        commands = function.__globals__.setdefault("COMMANDS", {})
        commands[run.__name__] = Registered(run, options, examples, of_program)
        return run

    return register


def group_of(parameter: Parameter) -> tuple[list[Option], Callable[[Given], Any]]:
    """The options that a parameter of a command stands for, and what makes its argument of their values.

    It is a named tuple of options, the settings of a section, or one option by itself.
    """
    name = parameter.name
    kind = parameter.annotation
    if members := getattr(kind, "_field_defaults", None):
        hints = get_type_hints(kind, include_extras=True)
        section = SECTIONS.get(kind)
        options = [lone_option(item, hints[item], own, section) for item, own in members.items()]
        return options, lambda values: getattr(kind, "of", kind)(**values)
    settings = getattr(kind, "__metadata__", ())[:1]
    if settings and isinstance(settings[0], dict):
        options = [setting_option(*item) for item in settings[0].items()]
        return options, lambda values: {item: value for item, value in values.items() if is_given(value)}
    return [lone_option(name, kind, parameter.default)], lambda values: values[name]


def lone_option(name: str, kind: Any, own: Any, section: str | None = None) -> Option:
    """The option that is the default of its parameter, or, where several share it, in the type."""
    if get_origin(kind) is Annotated:
        kind, (own,) = kind.__origin__, kind.__metadata__
    section = section or own.section
    flags = own.flags
    if not flags and not own.is_argument:
        flags = [f"--{name.replace('_', '-')}"]
    declared = own._replace(section=section, flags=flags)
    default = False if kind is bool else own.usual
    if own.is_argument and type(None) not in get_args(kind):
        default = ...
    if not own.readers:
        return Option(name, kind, declared, default, read=lambda value: value)

    (reader,) = own.readers
    declared = declared._replace(metavar=own.metavar or reader.metavar)
    return Option(name, str | None, declared, default, read=lambda text: reader(Plain(text)))


def setting_option(name: str, setting: Setting) -> Option:
    flag = setting.flag
    assert flag is not None
    help_text = f"{setting.help} {flag.more}".rstrip()
    metavar = flag.metavar or setting.reader.metavar
    if setting.switch:
        declared = Declared(help_text, [flag.name], section=flag.group)
        return Option(name, bool, declared, default=False, read=setting.read_flag)

    declared = Declared(help_text, [flag.name], metavar, section=flag.group)
    kind = list[str] | None if flag.repeated else str | None
    return Option(name, kind, declared, default=None, read=setting.read_flag)


def read_all(options: list[Option], texts: Given) -> Given:
    """The value of every option that is given. Raises AttnError with every problem of all of them."""
    values: Given = {}
    problems: list[str] = []
    for option in options:
        text = texts[option.name]
        values[option.name] = text
        if text is None:
            continue
        try:
            values[option.name] = option.read(text)
            problems += announce(option, text)
        except BadValueError as wrong:
            problems += (f"{option.flag}: {text}" for _, text in wrong.problems)
        except AttnError as error:
            problems += error.problems

    # One problem of each option that does not go with the others, in the order of the help.
    flags = {option.name: option.flag for option in options}
    misplaced: dict[str, str] = {}
    for option in options:
        for name, problem in wrong_beside(option, values, flags):
            misplaced.setdefault(name, problem)
    problems += [misplaced[name] for name in flags if name in misplaced]

    raise_all(problems)
    return values


def announce(option: Option, text: str | list[str]) -> Iterator[str]:
    """Say which files are to be written, where it names such; a problem for each that cannot be."""
    formats = option.declared.writes
    files = split_outputs([text] if isinstance(text, str) else text)[0] if formats else []
    for path in files:
        announce_output(path, option.flag)
    yield from () if isinstance(formats, bool) else unwritable(files, formats)


def wrong_beside(option: Option, given: Given, flags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The options that do not go with this one, by name, and what is said of each."""
    for term in option.declared.terms if is_asked(given, option.name) else ():
        said = term.words.format_map(given)
        for name in term.wrong(given):
            wrong = name or option.name
            yield wrong, said if said.startswith("-") else f"{flags[wrong]}: {said}"


def renames(pairs: list[str], flag: str = "--name") -> dict[str, str]:
    """['theirs=ours', …] -> {theirs: ours}; ours may be a symbol."""
    if not pairs:
        return {}
    parts = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (theirs, _, ours) in zip(pairs, parts, strict=True) if not (theirs and ours)]
    raise_all(f"{flag}: {pair!r} is not THEIRS=OURS; write it like query=Q" for pair in wrong)
    return {theirs: SYMBOLS.get(ours, ours) for theirs, _, ours in parts}
