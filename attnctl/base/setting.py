"""One setting: said once, for the config, its schema, the flag, the keyword and their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.values import SWITCH, Json, Plain, Reader

Given = dict[str, Any]
"""The settings that are given by flags, by keyword."""

ATTENTION, SENTENCE, ARRAYS, EDIT = "Attention", "Sentence", "Arrays", "What if"
GRADIENTS = "Log-sum-exp and gradients"
"""Groups of flags, as sections of a help: the commands that take one of a group take them all."""


@dataclass(eq=False)
class Flag:
    """A setting's flag: all that the shell has beside the setting itself."""

    name: str
    """With its dashes: --d-model."""

    group: str = ATTENTION
    metavar: str = ""
    """What the help calls its value; left out, what the reader calls it."""

    more: str = ""
    """Help that only the shell needs, behind that of the setting."""

    parts: Callable[[str], Any] = Plain
    """From the flag's text to what the reader takes."""

    repeated: bool = False
    """Whether it may be given more than once, for a list."""


@dataclass(eq=False)
class Setting:
    """Something a person can set: its name in a config, how it is read, what it is for."""

    name: str
    reader: Reader
    help: str
    """One line for the config's comment, the schema and the flag."""

    example: Any = None
    flag: Flag | None = None
    words: Callable[[Any], str] | None = None
    """What the line above a run says of a value, as a config has it; left out, name and value."""

    @property
    def switch(self) -> bool:
        """True if it is on or off, and so a flag without a value."""
        return self.reader is SWITCH

    @property
    def schema(self) -> Json:
        examples = {} if self.example is None else {"examples": [self.example]}
        return {**self.reader.schema, "description": self.help, **examples}

    @property
    def keyword(self) -> str:
        """The flag as a Python keyword: --dilation -> dilation."""
        return self.flag.name.lstrip("-").replace("-", "_") if self.flag else self.name

    @property
    def flag_name(self) -> str:
        return self.flag.name if self.flag else f"--{self.name.replace('_', '-')}"

    @property
    def in_config(self) -> Any:
        """The setting in a list of a config: causal, {window: [3, 0]}."""
        return self.name if self.switch else {self.name: self.example}

    @property
    def at_example(self) -> Any:
        """The value that its example means; True of a switch."""
        return True if self.switch else self.reader(self.example)

    def said(self, value: Any) -> str:
        """A value in a few words, as a config has it: cache unrotated, sharpen 0.5."""
        if self.words is not None:
            return self.words(value)
        name = self.name.replace("_", " ")
        return name if self.switch else f"{name} {value}"

    def read_flag(self, given: Any) -> Any:
        """Read what its flag was given: a text, several, or on and off. Raises BadValueError."""
        assert self.flag is not None
        if self.switch:
            return given
        return self.reader(
            list(map(self.flag.parts, given)) if self.flag.repeated else self.flag.parts(given)
        )
