"""An exp that numba compiles (the extra `compiled`), for very many numbers where NumPy's is slow.

NumPy's is quick with AVX-512. Without it, it takes a quarter of attention at size in single precision,
and two fifths in double.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from math import factorial, log
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array

Exp = Callable[..., Array]
"""exp(x) in `out`, as `np.exp` has it; `out` may be `x` itself."""

VARIABLE = "ATTNCTL_COMPILED"
"""Environment: `off` asks for NumPy's exp, `on` for the compiled one in all tiles; unset, where it pays."""

OFF, ON = {"off", "0", "no", "false"}, {"on", "1", "yes", "true"}

TYPES: dict[str, tuple[Any, Any, float, float, int]] = {
    "float32": (np.float32, np.int32, 0.693359375, -2.12194440054690583e-4, 7),
    "float64": (np.float64, np.int64, 6.93147180369123816490e-01, 1.90821492927058770002e-10, 13),
}
"""By type: it, a whole number of its size, ln 2 in few bits and what is left of it, the last power of r."""

FEWEST = {"float32": 2**31, "float64": 2**29}
"""Fewer numbers than this are computed sooner than numba is imported (0.4 s; two cores without AVX-512)."""


def exp_for(dtype: np.dtype[Any], count: int) -> Exp:
    """The exp for so many numbers of a type: NumPy's, or the compiled one where it is there and pays.

    Raises AttnError where the environment asks for one that cannot be had.
    """
    asked, name = os.environ.get(VARIABLE, "").lower(), dtype.name
    if name not in TYPES or asked in OFF:
        return np.exp
    if asked not in ON and (count < FEWEST[name] or numpy_is_quick()):
        return np.exp
    exp = compiled_exp(name)
    if exp is None and asked in ON:
        raise AttnError(f"{VARIABLE}={asked}: no numba that compiles; pip install 'attnctl[compiled]'")
    return exp or np.exp


def numpy_is_quick() -> bool:
    """True if NumPy's exp is one for AVX-512, which this processor has; NumPy before 2.2 does not say."""
    introspect = getattr(np.lib, "introspect", None)
    if introspect is None:
        return False
    made_for = introspect.opt_func_info(func_name="^exp$").get("exp", {}).get("dd", {})
    return made_for.get("current", "").startswith(("AVX512", "X86_V4"))


@cache
def compiled_exp(name: str) -> Exp | None:
    """The compiled exp of a type of number; None where there is no numba, or none that compiles.

    Numba keeps what it compiled beside this file, or in the user's cache where that cannot be
    written; where neither can, each process compiles for itself, which takes 0.7 s.
    """
    try:
        import numba

        if numba.config.DISABLE_JIT:
            return None
    except Exception:  # noqa: BLE001  a numba that does not fit this NumPy raises what it likes
        return None
    for kept in (True, False):
        try:
            fill = numba.njit(nogil=True, fastmath={"contract"}, cache=kept)(exp_loop(*TYPES[name]))
            fill(np.ones(1, name))
        except Exception:  # noqa: BLE001, S112  a full disk, a damaged cache: NumPy's exp is always there
            continue
        return partial(exp_by, fill)
    return None


def exp_by(fill: Callable[[Array], None], x: Array, out: Array) -> Array:
    """exp(x) in `out`, by a loop in place: over two arrays, which may overlap, it would not use vectors."""
    if not np.may_share_memory(x, out):
        np.copyto(out, x)
    fill(out.reshape(-1))
    return out


def exp_loop(real: Any, whole: Any, high: float, low: float, last: int) -> Callable[[Array], None]:
    """The loop to compile: exp(s) in place of each s, of operations that processors have for vectors.

    s = n ln 2 + r with |r| ≤ ½ ln 2 (Cody & Waite 1980), and exp(s) = 2ⁿ (1 + r + r²/2! + …). A number
    added to 1.5 · 2ᵐ, m the bits of a mantissa, is rounded to a whole one, which then stands in the last
    bits of the sum: shifted by m they are the exponent of a power of 2. It is 2ⁿ in two factors, as that
    may be too small or too large to have an exponent itself.
    """
    info = np.finfo(real)
    bits, bias, rounder = whole(info.nmant), info.maxexp - 1, real(1.5 * 2.0**info.nmant)
    least, most = real(log(info.smallest_subnormal) - 1), real(log(info.max) + 1)
    low_bias, high_bias, small, large = whole(bias + 64), whole(bias - 64), real(2.0**-64), real(2.0**64)
    per_ln2, high, low = map(real, (1 / log(2), high, low))
    terms = tuple(real(1 / factorial(i)) for i in reversed(range(last + 1)))

    def fill(x: Array) -> None:
        for i in range(x.size):
            s = x[i]
            s = least if s < least else s  # noqa: FURB136  NaN stays what it is
            s = most if s > most else s  # noqa: FURB136
            rounded = s * per_ln2 + rounder
            n = rounded - rounder
            r = s - n * high - n * low
            p = terms[0]
            for term in terms[1:]:
                p = p * r + term
            exponent = real(rounded).view(whole) + (low_bias if s < 0 else high_bias)
            x[i] = p * whole(exponent << bits).view(real) * (small if s < 0 else large)

    return fill
