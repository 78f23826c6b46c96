"""A verb as a value: what help, completion, Python and the tests are told of it."""

# Annotations are types here: as text, `NamedTuple` would compile each at every start.
from collections.abc import Mapping

from attnctl.base.format import Format
from attnctl.base.namedtuple import NamedTuple

SECTIONS = ("Look", "Learn", "Compare", "Build", "Files")
"""Of the first page of help, in the order in which a newcomer meets them."""

Formats = tuple[Format, ...]


class Verb(NamedTuple):
    """What is said of a verb before any of its code is imported.

    Where it is a group of commands (`exercise make`), what differs between them goes by the words of each.
    """

    name: str
    section: str
    """One of SECTIONS, or a new one, which comes last."""
    place: int
    """Its place in the section: those of 10 stand before those of 20."""
    line: str
    """Its line on the first page of help."""

    daily: Mapping[str, str] = {}
    """The options that are used daily, by command: the first page of its help; without any it shows all."""
    formats: Mapping[str, Formats] = {}
    """In which findings are written to files, by command; each writer takes a list of findings."""
    views: Mapping[str, str] = {}
    """For each class of its findings the ``module:function`` that draws one: `lines(value, screen)`."""
    function: str = ""
    """``module:name`` of what Python calls by the verb's name, where that can be."""
    sources: Mapping[str, str] = {}
    """The commands that take a SOURCE, each as one calls it: {"stats": "{} --json"}."""
    module: str = ""
    """The module of its COMMANDS, of one that a plug-in adds; ours are `attnctl.cli.NAME`."""
    trial: str = ""
    """Words after its name that show something of a dump a.json: laws over all verbs carry them out."""
