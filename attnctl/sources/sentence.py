"""A Source, which gives plans or traces; the runs of sentences: one, a config's own, several of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from attnctl.base.errors import AttnError
from attnctl.base.files import STANDARD_INPUT, open_input, refuse_os_errors
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.setting import Given
from attnctl.inputs.config.flags import settings_from
from attnctl.inputs.config.settings import Settings

if TYPE_CHECKING:
    from attnctl.inputs.plan import Plan
    from attnctl.math import Keep, Progress
    from attnctl.math.engine.cost import Cost
    from attnctl.record import Trace

NO_FLAGS: Given = {}


class Arguments(NamedTuple):
    """What a command line says beside a SOURCE: its settings, and how a file of arrays is read."""

    config: str | None = None
    flags: Given = NO_FLAGS
    trace: str | None = None
    """Which trace of a file is meant, by number or by sentence."""
    rename: Mapping[str, str] | None = None
    layer: int | None = None
    """The layer to read of a state dict."""
    stdin: str = ""
    """The file that a program reads as its input; "" for none."""


class Source:
    """Numbers as a person names them, and their settings, which each kind finds in its own place.

    It gives `plans()`, what they `run()` to, and `traces()`. By itself it is the run of its settings, or of
    a config; other kinds read a dump or a program, take arrays in memory, or run layers of a model.
    """

    kind: str = "run"
    """What messages call it, as its line in `attnctl.sources` has it."""
    lacking: ClassVar[str] = ""
    """What it may have been meant as."""
    is_run: ClassVar[bool] = True
    """False for what was recorded and is read."""
    is_file: ClassVar[bool] = False
    """True for a file or a stream, which may be an exercise as well."""
    is_program: ClassVar[bool] = False
    """True for a file of Python, whose attentions are judged where they stand."""
    no_rules: str = ""
    no_seed: str = ""
    """Why its rules or its seed cannot change, where that is so."""
    joined: Sequence[str] = ()
    """The words that were taken as one sentence."""

    def __init__(
        self,
        text: str | None = None,
        beside: Arguments | None = None,
        settings: Settings | None = None,
        sentences: Sequence[str] = (),
        *,
        padded: bool = False,
    ) -> None:
        self.text, self.beside = text, beside or Arguments()
        self.sentences, self.padded = sentences, padded
        if settings is not None:
            self.settings = settings

    @property
    def config(self) -> str | None:
        return self.beside.config

    @property
    def path(self) -> str:
        """What messages and reports call it."""
        return str(self.text or self.config)

    @cached_property
    def settings(self) -> Settings:
        """Those that it is run with: flags over config over defaults. Raises AttnError for misfits."""
        return settings_from(self.config, self.beside.flags)

    @cached_property
    def base(self) -> Settings:
        return settings_from(self.config, {})

    def of_seed(self, seed: int) -> Source:
        """The same, drawn from this seed."""
        other = copy(self)
        other.beside = self.beside._replace(flags={**self.beside.flags, "seed": seed})
        other.__dict__.pop("settings", None)  # worked out again
        return other

    def meant(self, trace: Trace) -> Settings | None:
        """What one of its traces was meant to be, where that is said."""
        return None

    @cached_property
    def words(self) -> tuple[str, ...]:
        """What names it on a command line, where that is not its sentence."""
        return ()

    def plans(self, settings: Settings | None = None) -> Sequence[Plan]:
        """Everything that its runs need: one for each sentence; of none, that of the settings' own."""
        from attnctl.inputs.plan.sentence import pad_batch, prepare_all

        asked, sentences = settings or self.settings, self.sentences
        if self.padded:
            asked, sentences = pad_batch(asked, sentences)
        return prepare_all(asked, sentences)

    def run(
        self, settings: Settings | None = None, keep: Keep = None, progress: Progress | None = None
    ) -> list[Trace]:
        from attnctl.inputs.plan import run_each

        return run_each(self.plans(settings), keep, progress)

    def costs(self, keep: Keep = None) -> list[list[Cost]]:
        """What each step of each run would take; nothing is computed. Raises AttnError as `run` does."""
        return [plan.costs(keep) for plan in self.plans()]

    def traces(self) -> Sequence[Trace]:
        return self.run()

    def trace(self) -> Trace:
        """Its one trace. Raises AttnError where there are several."""
        from attnctl.store.source import only_one

        return only_one(self.traces(), self.text)

    def under_our_names(self, trace: Trace) -> Trace:
        """One of its traces, with the names that another program gave its arrays read as ours."""
        return trace

    def after(self, layer: int) -> Source:
        """Its layers from this one on; what is no model has one."""
        return self

    notes: tuple[str, ...] = ()
    """How a program was read."""

    @property
    def summary(self) -> str:
        """How much of a program was judged."""
        return ""

    @property
    def is_judged_whole(self) -> bool:
        """False for a program of which some attention could not be judged."""
        return True

    def place_of(self, trace: Trace, step: str) -> str:
        """The line of a program that made this step of its trace; "" where it is of no program."""
        return ""

    def list_unused(self, of_files: Given, of_runs: Given) -> Iterator[str]:
        """A problem for each option that only files have, or only runs, by its flag."""
        has = "a dump" if self.is_run else "a sentence"
        for flag, value in (of_files if self.is_run else of_runs).items():
            if value is not None and value is not False:
                yield f"{flag}: only {has} has that, and this is a {self.kind}{self.lacking}"


def of_config(text: str | None, beside: Arguments | None = None) -> Source:
    """The run that a config describes, of its own sentence or of others."""
    beside = beside or Arguments()
    return Source(text, beside._replace(config=text or beside.config))


class Sentence(Source):
    lacking = ": there is no file of that name"

    def __init__(
        self, text: str, beside: Arguments | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__(text, beside, settings, (text,))

    @cached_property
    def settings(self) -> Settings:
        """Flags over config over defaults; the sentence is one of them."""
        return settings_from(self.config, self.beside.flags, sentence=self.text)


# --- several sentences ---


def join_words(words: Sequence[str]) -> list[str]:
    """The words of a sentence that was given without quotes, or none."""
    several = len(words) > 1 and all(len(word.split()) == 1 and word != STANDARD_INPUT for word in words)
    return list(words) if several else []


def gather_sentences(sentences: Sequence[str], file: str | None) -> list[str]:
    """Every sentence: the arguments (- is stdin, one a line), then those of a file."""
    out = [line for text in sentences for line in (read_lines(text) if text == STANDARD_INPUT else [text])]
    return out + (read_lines(file) if file is not None else [])


def read_lines(source: str) -> list[str]:
    """The lines of a file (- is stdin) that hold more than space."""
    with refuse_os_errors(source), open_input(source) as stream:
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttnError(f"{source}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    # A line ends at a newline (or \r\n) only: form feeds and U+2028 are part of a sentence.
    found = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    if not found:
        raise AttnError(f"{source}: no sentence in it; write one a line")
    return found
