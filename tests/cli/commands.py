"""Every command there is: its name, and the function that Typer calls."""

import importlib

from attnctl import VERBS


def commands():
    for name in VERBS:
        registered = importlib.import_module(f"attnctl.cli.{name}").app.registered_commands
        for each in registered:
            own = each.name or each.callback.__name__
            yield (name if len(registered) == 1 else f"{name} {own}"), each.callback
