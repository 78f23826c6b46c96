"""Every command there is: its words, and what is declared of it."""

import importlib

from attnctl.base.rooms import all_verbs, module_of_commands


def commands():
    for name in all_verbs():
        module = importlib.import_module(module_of_commands(name))
        for own, registered in module.COMMANDS.items():
            yield (f"{name} {own}" if hasattr(module, "GROUP") else name), registered


def parameters():
    """The names of the parameters of each command."""
    return {name: {option.name for option in registered.options} for name, registered in commands()}
