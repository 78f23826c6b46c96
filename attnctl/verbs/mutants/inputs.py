"""What wrong kernels are tried on: Q, K and V of a shape, as benchmarks draw them or models have them."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import round_in
from attnctl.inputs.plan.tensors import stream
from attnctl.math import Array
from attnctl.math.rules import alibi_slopes
from attnctl.verbs.mutants.kernel import OPTIONS

NUMBERS = {"window": (1, 1), "strided": 3, "softcap": 3.0}
"""What a kernel is handed for options of any inputs."""

SLOTS = 16
"""The keys of a page."""

DRAWS = ("rand", "randn", "activations")
TYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Inputs:
    """A draw of Q, K and V: batch, heads, tokens and columns; of a type, from a seed."""

    shape: tuple[int, int, int, int]
    draw: str = "randn"
    dtype: str = "float32"
    seed: int = 0
    backward: bool = False

    def words(self) -> str:
        """The options of the command line that say it."""
        shape = ",".join(map(str, self.shape))
        back = " --backward" * self.backward + f" --seed {self.seed}" * (self.seed != 0)
        return f"--dtype {self.dtype} --shape {shape} --draw {self.draw}{back}"

    def arrays(self, options: Collection[str]) -> dict[str, Any]:
        """The arguments of a kernel with these options, by name."""
        batch, heads, n, d = self.shape
        kv_heads = max(heads // 2, 1) if "grouped" in options else heads
        queries = n - n // 4 if "cached" in options else n
        keys = (batch, kv_heads, n, d)
        sizes = {"q": (batch, heads, queries, d), "k": keys, "v": keys}
        if "paged" in options:
            pool = (batch * -(-n // SLOTS) + 1, SLOTS, kv_heads, d)
            sizes |= {"k": pool, "v": pool}
        given = {name: self.numbers(name, size) for name, size in sizes.items()}
        if self.backward:
            given = {"d_output": self.normal("d_output", sizes["q"])} | given
        rounded: dict[str, Any] = {name: round_in(self.dtype, array) for name, array in given.items()}
        return rounded | {OPTIONS[name]: self.argument(name) for name in sorted(options) if OPTIONS[name]}

    def argument(self, option: str) -> Any:
        """What a kernel is handed for an option; a mask has a row that sees the last key alone."""
        batch, heads, n, _ = self.shape
        match option:
            case "documents":
                return (0, n // 4, n // 2 + 1)
            case "mask":
                seen = stream(self.seed, "mutants", "mask", count=n * n).random_sample((n, n)) < 0.7
                seen |= np.eye(n, dtype=bool)  # what a row that sees nothing gives is a convention
                seen[n // 2] = np.arange(n) == n - 1
                return seen
            case "padded":
                return n - np.arange(batch) * (n // 3) // max(batch - 1, 1)
            case "paged":
                pages = np.arange(batch * -(-n // SLOTS)) + 1
                return pages[::-1].reshape(batch, -1)
            case "alibi":
                return round_in(self.dtype, alibi_slopes(heads))
            case "bias":
                return round_in(self.dtype, self.normal("bias", (n, n)))
            case "sink":
                return round_in(self.dtype, self.normal("sink", (heads,)))
        return NUMBERS.get(option, True)

    def normal(self, name: str, size: tuple[int, ...]) -> Array:
        return stream(self.seed, "mutants", name, count=prod(size)).standard_normal(size)

    def numbers(self, name: str, size: tuple[int, ...]) -> Array:
        """As torch.rand draws them, as torch.randn does, or as they are in trained models.

        Activations: columns of different sizes, values with a mean of their own, and heads that go from
        nearly even weights to one key for each query, so that some scores are far above 100.
        """
        if self.draw == "rand":
            return stream(self.seed, "mutants", name, count=prod(size)).random_sample(size)
        drawn = self.normal(name, size)
        if self.draw == "randn":
            return drawn
        drawn = drawn * np.exp(self.normal(f"{name} columns", size[-1:]) / 2)
        if name == "q":
            drawn = drawn * 2 ** np.linspace(-1, 6, size[1])[:, None, None]
        return drawn + self.normal("means", size[-1:]) / 2 if name == "v" else drawn
