"""The command line in this process, as the tests of commands have it."""

from cli.conftest import call  # noqa: F401  (a fixture)
