"""The input of a command: its SOURCE, its sentences, its settings (flags over config over defaults)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import STANDARD_INPUT, open_input, refuse_os_errors
from attnctl.base.setting import Given
from attnctl.base.values import Path
from attnctl.inputs.config.examples import EXAMPLE
from attnctl.inputs.config.fields import FIELDS, IN_PARTS, lay_over
from attnctl.inputs.config.settings import Settings

if TYPE_CHECKING:
    from attnctl.record.trace import Trace

DUMP, CONFIG, SENTENCE = "dump", "config", "sentence"

SUFFIXES = {
    **dict.fromkeys((".json", ".jsonl", ".npz", ".npy", ".safetensors", ".html"), DUMP),
    **dict.fromkeys((".yaml", ".yml"), CONFIG),
}
TEXT = ".txt"
OTHER_FILES = (TEXT, ".csv", ".md", ".svg", ".png")
"""Suffixes of files that hold no dump and no config: a word with one of them is no sentence."""

FOLDERS = ("/", "./", "../", "~/")
"""What nobody begins a sentence of one word with."""

SELECTION = r"\[[^]]*\]$"
"""Which trace of a file is meant: s.jsonl[3]."""

HELP = "A dump, a config (.yaml), example:NAME, last (the run before), - for stdin, or a sentence."


class NamedInput(NamedTuple):
    """A dump to read or a run to carry out; the settings of a run are laid over those of `config`."""

    kind: str
    text: str | None
    config: str | None = None

    @property
    def is_run(self) -> bool:
        return self.kind != DUMP

    @property
    def is_last(self) -> bool:
        return self.text is not None and is_last(self.text)

    @property
    def is_file(self) -> bool:
        return self.kind == DUMP and not self.is_last

    def path(self, trace: str | None) -> str:
        """The file and which of its traces is meant, as `attnctl.store.read` takes it: s.jsonl[3]."""
        return f"{self.text}[{trace}]" if trace is not None else str(self.text)

    @property
    def sentence(self) -> str | None:
        return self.text if self.kind == SENTENCE else None

    def settings(self, flags: Given) -> Settings:
        """The settings of the run, or those of the run that a dump records, flags laid over them."""
        if self.is_run:
            return settings_from(self.config, flags, sentence=self.sentence)
        from attnctl.inputs.plan.intended import settings_of

        trace = self.read_one()
        if not trace.config.get("vocab"):
            raise AttnError(f"{self.text}: arrays, not the run of a sentence; attnctl attend reads those")
        return settings_from(None, flags, base=without_what_follows(settings_of(trace)))

    def run(self, flags: Given) -> Trace:
        """The run of the sentence, or of the config's own."""
        from attnctl.inputs.plan.sentence import prepare

        return prepare(self.settings(flags)).run()

    def read(self, trace: str | None = None, rename: Mapping[str, str] | None = None) -> list[Trace]:
        """Every trace of the dump, or the one that `trace` names, by number or by sentence."""
        from attnctl.cli import last
        from attnctl.store import read

        if self.is_last:
            return last.read_last(str(self.text), trace)
        return read(self.path(trace), rename=rename)

    def read_one(self, trace: str | None = None, rename: Mapping[str, str] | None = None) -> Trace:
        """The one trace of the dump. Raises AttnError where there are several."""
        from attnctl.store.source import only_one

        return only_one(self.read(trace, rename), self.text)

    def traces(
        self, flags: Given, trace: str | None = None, rename: Mapping[str, str] | None = None
    ) -> list[Trace]:
        """Return the traces of the dump, or the one of the run."""
        return [self.run(flags)] if self.is_run else self.read(trace, rename)

    def list_unused(self, of_files: Given, of_runs: Given) -> Iterator[str]:
        """A problem for each option that only files have, or only runs, by its flag."""
        for flag, value in (of_files if self.is_run else of_runs).items():
            if value is not None and value is not False:
                has, this = (
                    (
                        "a dump",
                        f"a {self.kind}{': there is no file of that name' * (self.kind == SENTENCE)}",
                    )
                    if self.is_run
                    else ("a sentence", "a dump")
                )
                yield f"{flag}: only {has} has that, and this is {this}"


def source_of(text: str | None, config: str | None = None) -> NamedInput:
    """Resolve a SOURCE of the command line; left out, it is the sentence of the config.

    Raises AttnError for a config beside another one.
    """
    if text is None:
        return NamedInput(CONFIG, None, config)
    kind = kind_of(text)
    if kind == CONFIG and config is not None:
        raise AttnError(f"{text}: a config beside -c {config}; give one of them")
    return NamedInput(kind, text, text if kind == CONFIG else config)


def kind_of(text: str) -> str:
    """Tell the kind of a SOURCE: a file that is there or is named like one, an example, or a sentence."""
    if text == STANDARD_INPUT or is_last(text):
        return DUMP
    path = text if is_file(text) or not text.endswith("]") else re.sub(SELECTION, "", text)
    known = SUFFIXES.get(os.path.splitext(path)[1].lower())  # noqa: PTH122  (a text, perhaps of any length)
    if is_file(path):
        return known or DUMP
    if any(character.isspace() for character in path):
        return SENTENCE
    if text.startswith(EXAMPLE):
        return CONFIG
    is_path = text in {".", ".."} or text.startswith(FOLDERS) or text.lower().endswith(OTHER_FILES)
    return known or (DUMP if is_path else SENTENCE)


def without_what_follows(settings: Settings) -> Settings:
    """The settings without sizes that follow from the others, so that those may be changed."""
    heads, width = settings.heads or 1, settings.d_model or 0
    usual = {"kv_heads": heads, "d_k": width // heads, "d_v": width // heads}
    return settings.with_(**{name: None for name, size in usual.items() if getattr(settings, name) == size})


def no_lone_word(source: NamedInput) -> NamedInput:
    """The input of a verb that is of files first. Raises AttnError for a word that may be a file's name."""
    if source.kind == SENTENCE and len(str(source.text).split()) == 1:
        what = "it is a folder; give" if os.path.isdir(str(source.text)) else "no such file;"  # noqa: PTH112  (never raise)
        raise AttnError(f"{source.text}: {what} a dump, a config, example:NAME, last or a sentence")
    return source


def by_flag(given: Given) -> Given:
    """The settings that are given, by their flag."""
    from attnctl.inputs.config.fields import KEYWORDS

    spelled = {name: f"--{name.replace('_', '-')}" for name in given}
    return {KEYWORDS[name].flag_name if name in KEYWORDS else spelled[name]: given[name] for name in given}


def is_last(text: str) -> bool:
    return text == "last" or (text.startswith("last[") and re.sub(SELECTION, "", text) == "last")


def is_file(path: str) -> bool:
    """True for anything that can be read: a file, a pipe, a device."""
    return os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112  (never raise)


class RunRequest(NamedTuple):
    """A run as `run` is asked for it: the source of its settings, and the sentences beside it."""

    source: NamedInput
    sentences: list[str]
    joined: list[str]
    """The words that were taken as one sentence."""


def find_run(words: Sequence[str], file: str | None, config: str | None) -> RunRequest:
    """The run that these words ask for: a config or example before sentences, a dump alone, or sentences.

    Words without quotes are one sentence where none of them has a space.
    """
    kind = kind_of(words[0]) if words and words[0] != STANDARD_INPUT else SENTENCE
    if kind == DUMP and words[0].lower().endswith(TEXT):
        raise AttnError(f"{words[0]}: text, no dump; --file {words[0]} reads sentences from it, one a line")
    named = kind == CONFIG or (kind == DUMP and len(words) == 1)
    source = source_of(words[0] if named else None, config)
    if source.kind == DUMP and (config or file):
        raise AttnError(f"{source.text}: a dump says itself what was run; leave out -c and --file")
    given = list(words[1:] if named else words)
    joined = [] if file else join_words(given)
    return RunRequest(source, gather_sentences([" ".join(joined)] if joined else given, file), joined)


def join_words(words: Sequence[str]) -> list[str]:
    """The words of a sentence that was given without quotes, or none."""
    several = len(words) > 1 and all(len(each.split()) == 1 and each != STANDARD_INPUT for each in words)
    return list(words) if several else []


def gather_sentences(sentences: Sequence[str], file: str | None) -> list[str]:
    """Every sentence: the arguments (- is stdin, one a line), then those of a file."""
    out = [each for text in sentences for each in (lines(text) if text == STANDARD_INPUT else [text])]
    return out + (lines(file) if file is not None else [])


def lines(source: str) -> list[str]:
    """The lines of a file (- is stdin) that hold more than space. Raises AttnError for none."""
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


def settings_from(config: str | None, flags: Given, base: Settings | None = None, **more: Any) -> Settings:
    """The settings of a command line; `more` holds settings that are no flags of the table.

    Flags are laid over the config, or over `base` where there is none. Raises AttnError with
    every problem in the config, or with flags that have no meaning.
    """
    base = base or Settings()
    if config is not None:
        from attnctl.inputs.config.load import load

        base = load(config)
    given = combine_parts(flags, base) | {name: each for name, each in more.items() if each is not None}
    return replace(lay_over(base, given), where=place_of_setting(base.where, given))


WHOLE = {
    "positions": "rotary positions have that; add --positions rope",
    "qk_norm": "norms of Q and K have that; add --qk-norm rms or --qk-norm layer",
}
"""The words on a flag of a part where the whole is not asked for."""


def combine_parts(flags: Given, base: Settings) -> Given:
    """The flags, those of a part of a setting laid over it: --theta over the rotary positions."""
    given = dict(flags)
    for name, form in IN_PARTS.items():
        parts = {key.name: given.pop(key.keyword) for key in form.keys.values() if key.keyword in flags}
        if not parts:
            continue
        setting = given.get(name, getattr(base, name))
        if not is_dataclass(setting):
            unused = ", ".join(form.keys[part].flag_name for part in parts)
            raise AttnError(f"{unused}: only {WHOLE[name]}")
        given[name] = replace(setting, **parts)  # type: ignore[type-var]
    return given


def place_of_setting(base: Callable[[Path], str], given: Collection[str]) -> Callable[[Path], str]:
    """Return the place a value was written at: its flag, or its line in the config."""
    configured = base is not Settings().where

    def where(path: Path) -> str:
        name = str(path[0])
        if configured and name not in given:
            return base(path)
        if not configured and name in {"sentence", "context"}:
            return name
        return FIELDS[name].flag_name if name in FIELDS else f"--{name.replace('_', '-')}"

    return where
