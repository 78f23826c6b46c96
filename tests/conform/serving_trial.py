"""How many of the mistakes in `serving_more.py` a suite finds: tests/conform/serving_trial.py [--full].

The first run, before any case was made for them, found 38 of 40 in the quick suite: a few queries with a
window, and scales above 1, were in no case.
"""

import sys
from concurrent.futures import ProcessPoolExecutor

from serving_more import MORE
from serving_table import make

import attnctl

TYPES = ("float32",)


def is_found(number, full):
    """Whether a suite says that the kernel with this mistake is wrong; why is not looked for."""
    from attnctl.verbs.conform import causes
    from attnctl.verbs.conform.held import NOTHING

    causes.diagnose = lambda *_: NOTHING
    return attnctl.conform(make(MORE[number]), quick=not full, dtypes=TYPES).agrees is False


def main():
    full = "--full" in sys.argv
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(is_found, range(len(MORE)), [full] * len(MORE)))
    for fault, is_right in zip(MORE, found, strict=True):
        if not is_right:
            print(f"acquitted: {fault.name}")
    print(f"{'full' if full else 'quick'}: {sum(found)} of {len(MORE)} found")


if __name__ == "__main__":
    main()
