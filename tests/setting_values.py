"""A value of each setting, read off its own entry of the table: as flag, as keyword and in a config."""

from shlex import quote

from attnctl.base.values import flow
from attnctl.inputs.config.fields import FIELDS, IN_PARTS, SETTABLE

WHOLES = {
    "positions": ("--positions rope", lambda part: {"rope": part}),
    "qk_norm": ("--qk-norm rms", lambda part: {"kind": "rms", **part}),
    "tokenizer": ("", lambda part: part),
}
"""What asks for a setting whose parts have flags of their own, and how a config holds a part of it."""


def value_of(setting):
    """A value as a config has it, other than what it is where it is left out."""
    schema = setting.reader.schema
    choices = schema.get("enum") or schema.get("oneOf", [{}])[0].get("enum")
    if setting.switch:
        return True
    if setting.example is None and choices:
        return choices[-1]
    if schema.get("type") in ("integer", "number"):
        return max(2, schema.get("minimum", 0))
    return "ones" if setting.example is None else setting.example


def flag_of(setting, value):
    """The flag that says so: --window=3,0."""
    name = setting.flag.name
    if setting.switch:
        return name
    texts = value if setting.flag.repeated else [value]
    return " ".join(f"{name}={quote(text_of(each))}" for each in texts)


def text_of(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def ways(setting):
    """The flags, the keywords and the line of a config that ask for one value of a setting with a flag."""
    value = value_of(setting)
    flag = flag_of(setting, value)
    for whole, form in IN_PARTS.items():
        if setting in form.keys.values():
            asks, within = WHOLES[whole]
            inside = within({setting.name: value})
            return f"{asks} {flag}".strip(), {whole: inside}, flow({whole: inside})
    if setting in SETTABLE:
        line = {"rules": [setting.name if setting.switch else {setting.name: value}]}
        return flag, {setting.keyword: value}, flow(line)
    return flag, {setting.name: value}, flow({setting.name: value})


def with_flags():
    """Every setting that has a flag."""
    parts = (key for form in IN_PARTS.values() for key in form.keys.values())
    settings = (*FIELDS.values(), *SETTABLE, *parts)
    return {each.flag.name: each for each in settings if each.flag}
