"""Keys: equal exactly for what computes the same bits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fedrela_bench.config import RelabelConfig, Section, TrainingConfig, TrialConfig
from fedrela_bench.nested import deep_merge
from fedrela_bench.neutral import Neutral, neutral_values, with_neutral, without_neutral
from fedrela_bench.simulation.snapshot import base_key
from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from tests.study.fakes import config

PRINT = Fingerprint("data", numerics(config(), "cpu", 1), "1")


@pytest.mark.parametrize(
    "changes",
    [{"relabel__tau": 0.1}, {"relabel__start": 0.5}, {"relabel__period": 3}, {"relabel__preset": "author"}],
)
def test_relabelling_never_changes_the_trunk(changes: dict[str, Any]) -> None:
    assert trunk_key(config(**changes), PRINT) == trunk_key(config(), PRINT)


@pytest.mark.parametrize(
    "changes",
    [{"seed": 2}, {"training__lr": 0.01}, {"federation__algorithm": "fedprox"}, {"evaluation__eval_every": 2}],
)
def test_what_changes_bits_changes_trunk_and_cell(changes: dict[str, Any]) -> None:
    assert trunk_key(config(**changes), PRINT) != trunk_key(config(), PRINT)
    assert cell_key(config(relabel__tau=0.1, **changes), PRINT) != cell_key(config(relabel__tau=0.1), PRINT)


def test_data_arithmetic_and_code_are_part_of_a_key() -> None:
    others = [
        Fingerprint("other", PRINT.numerics, "1"),
        Fingerprint("data", numerics(config(), "gpu model", 1), "1"),
        Fingerprint("data", numerics(config(), "cpu", 2), "1"),
        Fingerprint("data", PRINT.numerics, "2"),
    ]
    assert len({trunk_key(config(), fingerprint) for fingerprint in (PRINT, *others)}) == 5


def test_a_folder_may_move() -> None:
    here, there = config(data__source="folder:/a/b"), config(data__source="folder:/c")
    assert trunk_key(here, PRINT) == trunk_key(there, PRINT) != trunk_key(config(), PRINT)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"relabel__start": 0.8}, {"relabel__start": 8}),
        ({"relabel__period": 0}, {"relabel__period": 2}),
        ({"relabel__std_ddof": 1}, {}),
    ],
)
def test_spellings_of_the_same_run_share_a_cell(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert cell_key(config(relabel__tau=0.1, **left), PRINT) == cell_key(config(relabel__tau=0.1, **right), PRINT)


def test_a_period_that_comes_round_is_another_cell() -> None:
    assert cell_key(config(relabel__tau=0.1, relabel__period=1), PRINT) != cell_key(config(relabel__tau=0.1), PRINT)


RECORDED = {
    "plain": (
        "b6e84fcda5c8be5647734b12c6083a40",
        "fef623fd7022d51a830468098046f58b",
        "3c292fd8aa6c65c89c479165dd32b668",
    ),
    "author": (
        "f6761b49c9a6b404e5797b7c5308f9ba",
        "89f98085894b5fe97ba12934826112ec",
        "2a902b5b7c0dcadc99cebf6d4f23b7b3",
    ),
    "table": (
        "0e30c0bbdb696afae0e642cc27040059",
        "47acdbab92cf6c9d318930b501cf07a1",
        "e776e390bda4bab3dd27995a121d40cb",
    ),
    "options": (
        "7a0b6c30493ced195de5c1ad24d2d67d",
        "e739057a6aebab5564aee52e7e507390",
        "03e36282589bd758aec40a12312f875c",
    ),
}
TABLE = {
    "data.source": "table:/a.csv",
    "data.partition": "natural",
    "data.label_column": "y",
    "federation.clients": "auto",
    "evaluation.early_stop_patience": 3,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("plain", {"relabel.tau": 0.05}),
        ("author", {"relabel.tau": 0.1, "relabel.preset": "author", "relabel.period": 2, "seed": 3}),
        ("table", {"relabel.tau": 0.05, **TABLE}),
        ("options", {"relabel.tau": 0.05, "federation.algorithm": "fedprox", "federation.options": {"mu": 0.1}}),
    ],
)
def test_what_was_computed_once_is_found_by_every_later_version(name: str, changes: dict[str, Any]) -> None:
    """A field was added? Give it the value that changes nothing, see fedrela_bench/neutral.py: these keys must stay."""
    fixed = Fingerprint(
        "data", (("amp", "none"), ("device", "cpu"), ("dtype", "float32"), ("threads", 1), ("torch", "2")), "1"
    )
    made = config(**changes)
    assert (trunk_key(made, fixed), cell_key(made, fixed), base_key(made, "data")) == RECORDED[name]


class LaterTraining(TrainingConfig):
    warmup: Annotated[int, Neutral(0)] = 0
    order: Annotated[Literal["size", "id"], Neutral("size")] = "id"
    """Its default is another one than what there was before."""


class LaterRelabel(RelabelConfig):
    judge: Annotated[str | None, Neutral(None)] = None


class Noise(Section):
    scale: Annotated[float, Neutral(0)] = 0.0


class LaterConfig(TrialConfig):
    """What the configuration could be in a later version."""

    training: LaterTraining = Field(default_factory=LaterTraining)
    relabel: LaterRelabel = Field(default_factory=LaterRelabel)
    noise: Noise = Field(default_factory=Noise)


def later(**changes: Any) -> LaterConfig:
    values = {"relabel": {"tau": 0.1}, "training": {"order": "size"}}
    return LaterConfig(**{**values, **changes})


def keys(made: TrialConfig) -> tuple[str, str, str]:
    return trunk_key(made, PRINT), cell_key(made, PRINT), base_key(made, "data")


def test_a_field_that_came_later_changes_no_key_where_it_changes_nothing() -> None:
    assert keys(later()) == keys(TrialConfig(relabel={"tau": 0.1}))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"training": {"order": "size", "warmup": 2}}, (True, True, True)),
        ({"training": {}}, (True, True, True)),
        ({"noise": {"scale": 0.5}}, (True, True, True)),
        ({"relabel": {"tau": 0.1, "judge": "loss"}}, (False, True, False)),
    ],
)
def test_a_field_that_came_later_changes_keys_where_it_changes_bits(
    changes: dict[str, Any], parts: tuple[bool, ...]
) -> None:
    differ = [new != old for new, old in zip(keys(later(**changes)), keys(later()), strict=True)]
    assert tuple(differ) == parts


def test_values_are_completed_with_what_they_meant() -> None:
    old = {"training": {"lr": 0.1}, "seed": 3}
    new = {"training": {"lr": 0.1, "warmup": 0, "order": "size"}, "relabel": {"judge": None}, "noise": {"scale": 0}}
    assert with_neutral(LaterConfig, old) == deep_merge(with_neutral(TrialConfig, old), new)
    assert without_neutral(LaterConfig, {**new, "seed": 3}) == old
    assert with_neutral(LaterConfig, {"noise": {"scale": 1}})["noise"] == {"scale": 1}
    assert dict(neutral_values(LaterConfig)) == dict(neutral_values(TrialConfig)) | {
        "training.warmup": 0,
        "training.order": "size",
        "relabel.judge": None,
        "noise.scale": 0,
    }


def test_a_switch_is_not_a_number() -> None:
    class Later(Section):
        level: Annotated[int | bool, Neutral(0)] = 0

    assert without_neutral(Later, {"level": False}) == {"level": False}
    assert without_neutral(Later, {"level": 0.0}) == {}
