"""What statistics must look like. Run this file to write the golden files anew, then read the diff."""

from io import StringIO
from pathlib import Path

import attnctl
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text
from attnctl.verbs.stats import StatsReport
from attnctl.verbs.stats.tally import measure_heads, rollout
from attnctl.verbs.stats.view import rollout_lines, stats_lines, write_csv

FOLDER = Path(__file__).parent / "golden"
TERMINAL, PIPE, ASCII = Screen(80, fits=True), Screen(), Screen(80, encoding="ascii")


def cats(**options):
    return attnctl.run("the cat saw the dog", **{"heads": 2, "causal": True, **options})


def dogs():
    return attnctl.run("the extraordinarily large dog saw nobody at all", heads=2, seed=3)


def crossed():
    return attnctl.run("I love AI", context="you love cats")


def blind():
    return attnctl.run("a b c", mask=[[0, 0, 0], [1, 0, 0], [1, 1, 1]])


def report(*traces):
    return StatsReport(
        tuple(measure_heads(trace, f"dump-{number}.json") for number, trace in enumerate(traces))
    )


def text(lines):
    return "".join(f"{line}\n" for line in plain_text(lines))


def table(screen, *traces, precision=2):
    return text(stats_lines(report(*traces), screen, precision))


def rolled(screen, *layers):
    return text(
        rollout_lines(StatsReport(report(*layers).dumps, rollout(layers), layers[0].tokens), screen, None)
    )


def csv(*traces):
    stream = StringIO()
    write_csv([report(*traces)], stream)
    return stream.getvalue()


CASES = {
    "one-80.txt": lambda: table(TERMINAL, cats()),
    "several-80.txt": lambda: table(TERMINAL, cats(), dogs()),
    "several-pipe.txt": lambda: table(PIPE, cats(), dogs(), precision=5),
    "different-ascii.txt": lambda: table(ASCII, crossed(), blind(), cats()),
    "rollout-80.txt": lambda: rolled(TERMINAL, cats(), cats(seed=1)),
    "several.csv": lambda: csv(cats(), crossed(), blind()),
    "aggregate.csv": lambda: csv(cats(), cats(seed=1)),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (FOLDER / name).write_text(case(), encoding="utf-8")
