"""Arrays of nobody's program as a trace, and what was meant as settings."""

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Alibi, Causal, Softcap, Window
from attnctl.record import Trace
from attnctl.store.header import foreign_step


def foreign(arrays, **header):
    return Trace({name: foreign_step(name, array) for name, array in arrays.items()}, arrays, header)


def meant(kind):
    """The options that ask for this kind of attention."""
    asked = {
        Causal(): kind.causal,
        Window(kind.window, kind.window): kind.window is not None,
        Alibi(): kind.alibi,
    }
    rules = [rule for rule, wanted in asked.items() if wanted]
    rules += [Softcap(kind.softcap)] if kind.softcap else []
    return Settings(
        heads=kind.heads,
        kv_heads=kind.kv_heads,
        scale=kind.scale,
        rules=tuple(rules),
        positions="sinusoidal" if kind.sinusoidal else Rotary() if kind.rope else "none",
        causal_offset=kind.offset,
    )


def quietly(make, *args, **options):
    """Overflow is part of what is planted."""
    with np.errstate(all="ignore"):
        return make(*args, **options)
