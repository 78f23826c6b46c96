"""Load every file named on the command line, each in a process of its own under tight limits.

Prints a JSON object: file -> [how it ended, its problems, seconds]. Forking from one process that
has everything imported keeps this fast.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from attnctl.base.errors import AttnError
from attnctl.inputs.config.load import load

MEMORY = 2**30
SECONDS = 20


def attempt(path):
    """What comes of loading it, in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(2 * SECONDS)
    try:
        load(path)
    except AttnError as error:
        return ["AttnError", list(error.problems)]
    except BaseException as error:  # noqa: BLE001  that is what the test is for
        return [type(error).__name__, [str(error)[:500]]]
    return ["loaded", []]


def in_a_process(path):
    """What came of loading it in another process, a signal included."""
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(attempt(path), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - began
    if os.WIFSIGNALED(status):
        return [f"signal {os.WTERMSIG(status)}", [], seconds]
    return [*json.loads(said), seconds]


if __name__ == "__main__":
    json.dump({path: in_a_process(Path(path)) for path in sys.argv[1:]}, sys.stdout)
