"""The pages of samples/reference: what ops, rules, verbs and families say of themselves.

`python tests/reference.py` writes them; `tests/test_reference.py` holds them to what the code says now.
"""

from collections import defaultdict
from importlib import import_module
from inspect import cleandoc, getmodule
from pathlib import Path

from attnctl.base.format import function
from attnctl.base.rooms import all_verbs, module_of_commands
from attnctl.math import ops
from attnctl.math.rules import RULES
from attnctl.models.families import FAMILIES, NEEDS

FOLDER = Path(__file__).parent.parent / "samples" / "reference"
MADE = "Made from the code by `python tests/reference.py`."


def code(text):
    """Text as code; a bar would end a cell of a table."""
    return f"`{' '.join(str(text).split())}`".replace("|", "\\|")


def cell(text):
    """Text in a table, where < would begin a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def first_paragraph(documented):
    return " ".join(cleandoc(documented.__doc__).partition("\n\n")[0].split())


def table(*titles):
    """The first lines of a table."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)


def is_ours(thing):
    """Not a plug-in's."""
    return thing.__module__.startswith("attnctl.")


def lines_of_ops():
    yield "# Ops"
    yield ""
    yield "What a line of the derivation does: *name = op(inputs)*. In a signature inputs in [ ] may be"
    yield "left out, an axis with ? may be lacking, and (past + new) has the one behind the other."
    yield MADE
    by_module = defaultdict(list)
    for op in filter(is_ours, ops.OPS.values()):
        by_module[getmodule(op)].append(op)

    for module in sorted(by_module, key=lambda module: module.__name__):
        yield from ("", f"## {module.__name__.rpartition('.')[2]}", "", first_paragraph(module), "")
        yield from table("op", "what it gives", "axes")
        for op in by_module[module]:
            axes = code(op.signature) if isinstance(op.signature, str) else "as its inputs have them"
            yield f"| {code(op.__name__)} | {cell(cleandoc(op.__doc__))} | {axes} |"


def lines_of_rules():
    yield "# Rules"
    yield ""
    yield "Who sees whom, and what scores become: `rules: [causal, {window: [3, 0]}]` in a config."
    yield MADE
    for name, rule in RULES.items():
        if is_ours(rule):
            yield from ("", f"## {name}", "", cleandoc(rule.__doc__), "")
            yield from table("", "")
            yield from setting_lines(name, rule.setting)
            if isinstance(rule.words, str):
                yield f"| in a story | {cell(rule.words)} |"
            yield f"| its class | {code(rule.__module__)} {code(rule.__name__)} |"


def setting_lines(name, setting):
    if setting is None:
        return
    yield f"| what it says | {cell(setting.help)} |"
    yield f"| in a config | {code(name if setting.switch else f'{name}: {setting.example}')} |"
    if setting.flag is not None:
        metavar = "" if setting.switch else setting.flag.metavar or setting.reader.metavar
        yield f"| as an option | {code(flag_text([setting.flag.name], metavar))} |"


def flag_text(flags, metavar):
    """-o, --output FILE."""
    return f"{', '.join(flags)} {metavar or ''}".strip()


def lines_of_verbs():
    yield "# Verbs"
    yield ""
    yield "Each as `--help-all` has it."
    yield MADE
    for verb in all_verbs().values():
        if verb.module:  # a plug-in's
            continue
        yield from ("", f"## {verb.name}")
        if verb.function:
            said = first_paragraph(function(verb.function))
            yield from ("", f"In Python, {code(f'attnctl.{verb.name}')}: {said}")
        module = import_module(module_of_commands(verb.name))
        for name, command in module.COMMANDS.items():
            if hasattr(module, "GROUP"):
                yield from ("", f"### attnctl {verb.name} {name}")
            yield from command_lines(command)


def command_lines(command):
    yield from ("", cleandoc(command.run.__doc__), "", "```sh", *command.examples, "```", "")
    yield from table("", "")
    for option in command.options:
        said = option.declared
        metavar = said.metavar or ("" if option.is_switch else "TEXT")
        flags = option.flag if said.is_argument else flag_text(said.flags, metavar)
        yield f"| {code(flags)} | {cell(said.help)} |"


def lines_of_families():
    yield "# Families of models"
    yield ""
    yield "The `model_type` of config.json, its stacks of layers, and the keys that are read; any other"
    yield "that says something is refused by name."
    yield from (MADE, "")
    kinds_of = defaultdict(list)
    for kind, stacks in FAMILIES.items():
        kinds_of[tuple(map(id, stacks.values()))].append(kind)

    yield from table("model_type", "stacks", "keys of config.json")
    for kinds in kinds_of.values():
        stacks = FAMILIES[kinds[0]]
        names = ", ".join(name or "layers" for name in stacks)
        keys = dict.fromkeys(key.names[0] for stack in stacks.values() for key in stack.keys)
        yield f"| {', '.join(map(code, kinds))} | {names} | {', '.join(map(code, keys))} |"

    yield from ("", "These are refused, as each needs something that no family has:", "")
    yield from table("model_type", "needs")
    for need, kinds in NEEDS.items():
        yield f"| {', '.join(map(code, kinds.split()))} | {need} |"


PAGES = {
    "ops.md": lines_of_ops,
    "rules.md": lines_of_rules,
    "verbs.md": lines_of_verbs,
    "families.md": lines_of_families,
}


def page(name):
    return "\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in PAGES:
        (FOLDER / each).write_text(page(each))
