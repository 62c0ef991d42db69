"""Pages name what exists: models, fields of the configuration, files of a study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedrela_bench.config import field_names
from tests.docs.lines import leaves
from tests.docs.pages import ROOT, blocks, name_of, pages, prose

FOREIGN = {"--signal", "--minutes", "--only", "--tiny", "--help"}
"""Options of Slurm, of the check for GPUs, and of every command."""
FIELD = r"`(?:--)?((?:data|federation|training|relabel|evaluation|privacy)\.[a-z_0-9]+)"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_fields_exist(page: Path) -> None:
    known = {*field_names(), "federation.options", "privacy.guarantee"}
    assert [name for name in re.findall(FIELD, prose(page)) if name not in known] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_options_named_in_passing_exist(page: Path) -> None:
    known = {
        name for leaf in leaves().values() for param in leaf.params for name in (*param.opts, *param.secondary_opts)
    }
    assert [name for name in re.findall(r"`(--[a-z-]+)(?=[ `])", prose(page)) if name not in known | FOREIGN] == []


def test_every_field_of_privacy_is_told() -> None:
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert [name for name in field_names() if name.startswith("privacy.") and f"`{name}`" not in page] == []


def test_every_relabeler_that_ships_is_told() -> None:
    from fedrela_bench.relabelers import RELABELERS

    page = (ROOT / "docs" / "controls.md").read_text(encoding="utf-8")
    shipped = {name for name, kind in RELABELERS.items() if kind.__module__.startswith("fedrela_bench.")}
    assert set(re.findall(r"^\| `(\w+)`", page, re.M)) - {"relabel"} == shipped


def test_an_algorithm_takes_forty_lines() -> None:
    page = ROOT / "docs" / "plugins.md"
    (text,) = [block.text for block in blocks(page) if block.marks.get("file") == "fedls.py"]
    assert len(text.splitlines()) <= 44


def test_every_model_is_named() -> None:
    from fedrela_bench.models import MODEL_NAMES

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in MODEL_NAMES if f"`{name}`" not in readme] == []


def test_every_algorithm_is_named_in_the_readme_and_the_changes() -> None:
    from fedrela_bench.algorithms import ALGORITHMS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shipped = [name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("fedrela_bench.")]
    assert len(shipped) > 20
    assert [name for name in shipped if f"`{name}`" not in readme] == []
