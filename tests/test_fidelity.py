"""The fidelity page covers every algorithm, every option and every choice of relabelling."""

from __future__ import annotations

import re

import pytest

from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.cli import main
from fedrela_bench.config import AUTHOR_PRESET, RelabelConfig, TrialConfig
from fedrela_bench.data import load_dataset
from fedrela_bench.simulation import Simulation
from tests.docs.pages import ROOT, blocks, commands
from tests.kits import names

FILE = ROOT / "docs" / "fidelity.md"
PAGE = FILE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))
FEDRELA = PAGE[PAGE.index("\n## FedReLa") : PAGE.index("\n## What holds")]
COMMANDS = [words for block in blocks(FILE) if block.kind == "bash" for words in commands(block.text)]


def test_every_algorithm_has_a_section_and_nothing_else_has() -> None:
    assert set(SECTIONS) == set(names())


@pytest.mark.parametrize("name", names())
def test_every_option_and_head_of_an_algorithm_is_explained(name: str) -> None:
    section = SECTIONS[name]
    kind = ALGORITHMS[name]
    missing = [option for option in kind.OptionsModel.model_fields if f"`{option}`" not in section]
    assert not missing
    assert not [head for head in kind.posterior_heads if f"`{head}`" not in section]
    assert "Posterior" in section


@pytest.mark.parametrize("name", names())
def test_defaults_in_an_options_table_are_the_codes(name: str) -> None:
    fields = ALGORITHMS[name].OptionsModel.model_fields
    for cells in re.findall(r"^\| (`.*?) \| (.*?) \|", SECTIONS[name], re.MULTILINE):
        options, values = (re.findall(r"[\w.-]+", cell) for cell in cells)
        assert len(options) == len(values)
        for option, value in zip(options, values, strict=True):
            default = fields[option].default
            written = value == str(default).lower() if isinstance(default, bool | str) else float(value) == default
            assert written, f"{option}: the page has {value}, the code {default}"


def test_every_choice_of_the_relabelling_is_explained() -> None:
    options = [name for name in RelabelConfig.model_fields if f"`relabel.{name}`" not in FEDRELA]
    assert options == []


def test_the_authors_preset_is_tabled_as_it_is() -> None:
    rows = {row.split("|")[2].strip(): row for row in FEDRELA.splitlines() if row.startswith("| ")}
    for name, value in AUTHOR_PRESET.items():
        row = next(text for options, text in rows.items() if f"`relabel.{name}`" in options)
        shown = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        assert shown in row.split("|")[4].replace("1e-6", "1e-06")


def test_the_control_arm_is_the_drop_without_relabelling(capsys: pytest.CaptureFixture[str]) -> None:
    drops = [words for words in COMMANDS if "--relabel.post_relabel_lr_scale" in words]
    control = next(words for words in drops if "--relabel.tau" not in words)
    assert main([*control, "--print-config"]) == 0
    out = capsys.readouterr()
    assert "the control arm" in out.out + out.err
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("fedrod", ("optimiser of its own", "hypernetwork", "personal accuracy")),
        ("ratio_loss", ("5000", "one gradient at the current", "lr 0.001", "batch 64", "20 of 100 clients")),
        ("feddyn", ("loss and regulariser together", "before momentum and weight decay")),
        ("climb", ("counts from the next dual round on", "report")),
    ],
)
def test_the_page_and_the_command_know_the_same_differences(name: str, facts: tuple[str, ...]) -> None:
    for text in (SECTIONS[name], ALGORITHMS[name].differences):
        flat = " ".join(text.split())
        assert [fact for fact in facts if fact not in flat] == []


def test_metrics_on_the_page_are_measured() -> None:
    named = set(re.findall(r"`(test/\w+[.@]\w+)`", PAGE))
    config = TrialConfig().replace(
        {
            "federation.algorithm": "fedloge",
            "federation.options.ssec_steps": 0,
            "federation.rounds": 1,
            "federation.clients": 2,
            "training.model": "digits",
        }
    )
    assert named == {"test/overall.realign"}
    assert named <= Simulation(config, load_dataset(config)).run_round().metrics.keys()
