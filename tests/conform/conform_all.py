"""Hold every planted kernel to the suite, a line each: python tests/conform/conform_all.py [NAME…]"""

import sys
import time

from conform_table import KERNELS, RIGHT, WRONG, Wrong

import attnctl

OPTIONS = {"--layout": "layout", "--like": "like"}


def conform(kernel, **more):
    """The report on one kernel, in a process of its own."""
    told = kernel.options if kernel in RIGHT else ()
    options = {OPTIONS[flag]: value for flag, value in zip(told[::2], told[1::2], strict=True)}
    target = f"{KERNELS}/{kernel.target.replace(':', '.py:')}"
    return attnctl.conform(target, timeout=2, **{**options, **more})


def summary(kernel, found):
    """One line: whether the verdict is what it should be, and the mistakes that are named."""
    said = dict.fromkeys(
        f"{each.feature}: {each.failure.mistake if each.failure else '-'}" for each in found.wrong
    )
    if kernel in RIGHT:
        verdict = "right" if found.agrees else "ACCUSED"
    else:
        named = {each.failure.mistake for each in found.wrong if each.failure}
        explained = "explained" if kernel.mistake in named else "found"
        verdict = (
            "MISSED" if found.agrees is not False else explained if kernel.mistake else "found (no name)"
        )
    wanted = kernel.mistake or "" if isinstance(kernel, Wrong) else ""
    return f"{verdict:16} {kernel.target:42} {wanted:24} {'; '.join(list(said)[:8])}"


def main(names):
    for kernel in (*RIGHT, *WRONG):
        if (names and not any(name in kernel.target for name in names)) or (
            not names and "hangs" in kernel.target
        ):
            continue
        began = time.perf_counter()
        try:
            line = summary(kernel, conform(kernel, quick=True))
        except attnctl.AttnError as error:
            line = f"{'REFUSED':16} {kernel.target:42} {error}"
        print(f"{time.perf_counter() - began:5.1f} s {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
