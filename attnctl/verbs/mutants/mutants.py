"""The wrong kernels of the catalogue."""

from __future__ import annotations

from attnctl.base.dataclass import dataclass
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import KINDS
from attnctl.mistakes.mistake import Mistake
from attnctl.verbs.mutants.kernel import Kernel, kernel_options

SHARED_OUT = "attention_weights = e / e.sum(axis=-1, keepdims=True)"
"""How softmax ends: what is wrong stands above."""


@dataclass(frozen=True)
class Mutant:
    """A wrong kernel: the mistake that it makes, or one of its kind that shows less (`-slight`)."""

    name: str
    mistake: Mistake
    kernel: Kernel

    @property
    def words(self) -> str:
        """What is wrong; where that depends on numbers, the line that says them."""
        lines = [line for line in self.kernel.lines.split("\n") if line != SHARED_OUT]
        return self.mistake.words if "{}" not in self.mistake.words else lines[-1]


def make_mutants(*, backward: bool = False) -> tuple[list[Mutant], dict[str, str]]:
    """The wrong kernels of the catalogue, and of each other entry why it is none."""
    first = {mistake.name: mistake for mistake in reversed(CATALOGUE) if mistake.example}
    made: list[Mutant] = []
    left_out: dict[str, str] = {}
    for mistake in reversed(first.values()):
        ways = (("", mistake.example, mistake.equivalent), ("-slight", mistake.slight, ""))
        for slight, lines, equivalent in ways if mistake.slight else ways[:1]:
            kernel = kernel_of(mistake, lines, backward=backward)
            if why := equivalent or why_not(mistake, kernel):
                left_out[mistake.name] = why
            elif kernel:
                made.append(Mutant(mistake.name + slight, mistake, kernel))
    return made, left_out


def kernel_of(mistake: Mistake, lines: str, *, backward: bool) -> Kernel | None:
    options = kernel_options(mistake.meant)
    if options is None:
        return None
    batched = mistake.meant.startswith("batch") or "padded" in options
    about = f"{mistake.name}: {mistake.why}"
    return Kernel(options, lines, options, batched=batched, backward=backward, about=about)


OF_OUTPUTS = {"Q", "K", "V", "head_outputs", "concat"}


def why_not(mistake: Mistake, kernel: Kernel | None) -> str:
    """Why there is no such kernel, or its mistake is not in this pass; nothing where there is one."""
    if kernel is None:
        return f"it is in more than Q, K and V and an output of them: {mistake.meant}"
    goes_back = KINDS[mistake.meant].settings.backward
    if goes_back and not kernel.backward:
        return "it is in the backward pass"
    if kernel.backward and "chunks" in kernel.options:
        return "it is in the forward pass"
    if kernel.unfit:
        return f"it is in {', '.join(kernel.unfit)}"
    given = {name for names, _ in kernel.statements for name in names}
    if kernel.backward and not goes_back and (given & OF_OUTPUTS or "dropout" in mistake.name):
        return "it is in the forward pass"
    return ""
