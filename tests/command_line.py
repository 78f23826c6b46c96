"""A command line carried out in the test's own process."""

import io
import os
import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from attnctl.base.rooms import all_verbs
from attnctl.cli.program import program


class Done(NamedTuple):
    code: int
    out: str
    err: str


def call(*args, stdin=b""):
    streams = io.TextIOWrapper(io.BytesIO(stdin)), io.StringIO(), io.StringIO()
    try:
        code = program([str(each) for each in args], *streams)
    except SystemExit as ending:  # that of a program under capture
        code = ending.code
    return Done(int(code), streams[1].getvalue(), streams[2].getvalue())


@contextmanager
def working_in(folder):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def trials():
    """What shows something of a.json, of each verb that says so: its words."""
    verbs = all_verbs().values()
    return {verb.name: (verb.name, *shlex.split(verb.trial)) for verb in verbs if verb.trial}
