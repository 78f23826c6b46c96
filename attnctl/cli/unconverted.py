"""Parameters that are text and switches: nothing is left for Typer to convert.

From 0.29 on Typer converts even text to text with pydantic, which takes 70 ms to import: half a start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any


class Unconverted:
    """A command that gets the text of its options as the shell gave it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Every parameter, the help option among them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the command's other base
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = partial(text_of, parameter, parameter.process_value)
                if ctx.resilient_parsing:  # the shell asks how a word may go on
                    parameter.shell_complete = partial(completions, parameter, parameter.shell_complete)
        return parameters


def text_of(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the word the shell gave; Typer handles what is missing, and options with a callback."""
    missing = value in (None, ())
    if (missing and parameter.required) or (parameter.callback and not missing):
        return convert(context, value)
    return value


def completions(parameter: Any, otherwise: Callable[[Any, str], Any], context: Any, incomplete: str) -> Any:
    """Complete a word of this parameter; Typer does where nothing is known of it."""
    from attnctl.cli.complete import words

    found = words(parameter.name, parameter.metavar, context.params, incomplete)
    if found is None:
        return otherwise(context, incomplete)
    return [SimpleNamespace(value=each, help=None, type="plain") for each in found]
