"""Code of one's own: files and modules that register algorithms, models and what else has a name in a configuration.

A plugin is a Python file, a folder with an ``__init__.py``, or an installed module; importing it registers what it
brings. A file's text travels to every process that needs it, under a module name that holds the text's digest, and the
digest is part of the key of every run that uses what the plugin registers.
"""

from fedrela_bench.plugins.active import activate, active, code_of, facts, only, provided, used
from fedrela_bench.plugins.notes import note, origin_of, refuse, remarks, space_of, spaces
from fedrela_bench.plugins.places import place_of
from fedrela_bench.plugins.registering import enter, is_text, name_faults
from fedrela_bench.plugins.sources import GROUP, Plugin, installed, read_all, readable

__all__ = [
    "GROUP",
    "Plugin",
    "activate",
    "active",
    "code_of",
    "enter",
    "facts",
    "installed",
    "is_text",
    "name_faults",
    "note",
    "only",
    "origin_of",
    "place_of",
    "provided",
    "read_all",
    "readable",
    "refuse",
    "remarks",
    "space_of",
    "spaces",
    "used",
]
