"""Tables over settings: blocks and groups, dashes, marks and notes, several studies, rules and heads of single rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.reporting import gather
from fedrela_bench.reporting.cells import gains_table
from fedrela_bench.reporting.gather import merged, no_runs, read_studies, study_folders
from fedrela_bench.reporting.grid import build_grid
from fedrela_bench.reporting.published import Published
from fedrela_bench.reporting.render import RENDERERS
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec
from fedrela_bench.reporting.standing import standings
from fedrela_bench.reporting.table import Cell, Gain, Measure, Table
from fedrela_bench.reporting.view import View, parse_show, slug
from tests.reporting.fakes import GAINS, row, rows, study

BASE = {"name": "FedAvg", "runs": {"kind": "trunk"}, "reference": {"variant": "base"}}
OURS = {
    "name": "FedAvg + FedReLa",
    "runs": {"kind": "cell", "relabel.tau": 0.05},
    "reference": {"variant": "fedrela"},
}
PUBLISHED = Published(
    Path("a.csv"),
    tuple(
        {"variant": variant, "alpha": alpha, "metric": metric, "note": "", "accuracy_pct": str(value)}
        for variant, alpha, metric, value in (
            ("base", "0.1", "overall", 50.0),
            ("fedrela", "0.1", "overall", 55.0),
            ("base", "10", "overall", 60.0),
            ("fedrela", "10", "overall", 61.5),
            ("fedrela", "10", "tail", 30.0),
            ("base", "10", "tail", 20.0),
        )
    ),
)


def setting(group: str, alpha: float, block: str = "", **more: Any) -> dict[str, Any]:
    config = {"data.alpha": alpha}
    return {"block": block, "group": group, "dataset": "digits_lt", "config": config, **more}


TWO = (setting("α = 0.1", 0.1, reference={"alpha": 0.1}), setting("α = 10", 10, reference={"alpha": 10}))


def spec(**given: Any) -> ReportSpec:
    values = {"title": "t", "metrics": ["overall", "tail"], "settings": TWO, "rows": [BASE, OURS]}
    values |= {"reference": {"file": "a.csv", "label": "paper"}}
    return ReportSpec.model_validate({**values, **given})


def at(alpha: float, more: float = 0.0, **changes: Any) -> list[dict[str, Any]]:
    """The fake study's runs at another skew, every accuracy higher by `more`."""
    moved = []
    for item in rows():
        own = {**item, "param:data.alpha": str(alpha), "trunk_key": f"{alpha}/{item['trunk_key']}"}
        own |= {name: f"{alpha}/{item[name]}" for name in ("run_id", "key", "config_key")}
        own |= {name: value + more for name, value in item.items() if str(name).startswith("metric:")}
        moved.append({**own, **changes})
    return moved


def cell(table: Table, arm: str, key: str, block: str | None = None) -> Cell:
    place = [column.key for column in table.columns].index(key)
    names = [column.key for column in table.columns].index("arm")
    found = [line for line in table.rows if str(line[names]).startswith(arm) and block in (None, line[0])]
    exact = [line for line in found if line[names] == arm] or found
    return exact[0][place]


def test_settings_stand_side_by_side_with_their_own_gains_and_published_numbers() -> None:
    table = build_grid(study([*at(0.1), *at(10, 0.1)]), spec(), PUBLISHED)
    titles = [(column.group, column.title) for column in table.columns]
    assert titles[0] == ("", "arm") and titles[-1] == ("", "n")
    assert [group for group, _ in titles[1:-1]] == ["α = 0.1"] * 8 + ["α = 10"] * 8 + ["average rank"] * 2
    assert titles[1:5] == [
        ("α = 0.1", title) for title in ("overall", "Δ overall", "overall (paper)", "Δ overall (paper)")
    ]
    first, second = (cell(table, "FedAvg + FedReLa", f"{name}_overall") for name in ("alpha_0_1", "alpha_10"))
    assert isinstance(first, Measure) and isinstance(second, Measure)
    assert (first.value, second.value, second.n) == (pytest.approx(65), pytest.approx(75), 3)
    for name in ("alpha_0_1", "alpha_10"):
        gain = cell(table, "FedAvg + FedReLa", f"{name}_overall_gain")
        assert isinstance(gain, Gain) and gain.value == pytest.approx(3)
    assert cell(table, "FedAvg", "alpha_0_1_overall_published") == Measure(50.0)
    assert cell(table, "FedAvg + FedReLa", "alpha_10_overall_gain_published") == Gain(1.5)
    assert cell(table, "FedAvg + FedReLa", "alpha_0_1_tail_published") is None
    assert [line[-1] for line in table.rows] == [3, 3]


def test_blocks_repeat_the_rows_and_have_their_own_best() -> None:
    blocks = [setting("", 0.1, "skewed"), setting("", 10, "even")]
    table = build_grid(study([*at(0.1), *at(10, 0.2)]), spec(settings=blocks, reference=None))
    assert [column.key for column in table.columns[:3]] == ["block", "arm", "overall"]
    assert [line[:2] for line in table.rows] == [
        (block, arm) for block in ("skewed", "even") for arm in ("FedAvg", "FedAvg + FedReLa")
    ]
    assert {place for place, standing in standings(table).items() if standing == "best"} == {
        (row, column) for row in (1, 3) for column in (2, 4)
    }
    text = RENDERERS["tex"](table)
    assert text.count(r"\midrule") == 2 and "skewed & FedAvg + FedReLa" in text
    gains = gains_table(table)
    assert gains is not None
    assert [line[0] for line in gains.rows] == ["skewed, FedAvg + FedReLa"] * 2 + ["even, FedAvg + FedReLa"] * 2
    alone = build_grid(study(at(0.1)), spec(settings=blocks[:1], reference=None))
    assert [column.key for column in alone.columns] == ["arm", "overall", "overall_gain", "tail", "tail_gain", "n"]
    assert alone.columns[1].ranked and not alone.columns[2].ranked


def test_rows_are_ranked_over_all_settings_whatever_their_place() -> None:
    runs = study([*at(0.1), *at(10, 0.1)])
    for settings in (TWO, [setting("", 0.1, "x"), setting("", 10, "y")]):
        table = build_grid(runs, spec(settings=settings, reference=None))
        assert [(c.group, c.title) for c in table.columns[-3:-1]] == [
            ("average rank", "overall"),
            ("average rank", "tail"),
        ]
        assert cell(table, "FedAvg + FedReLa", "rank_overall") == Measure(1.0)
        assert cell(table, "FedAvg", "rank_tail") == Measure(2.0)
        assert sum("Average rank of overall: over 2 settings" in note for note in table.notes) == 1
    missing = build_grid(study(at(0.1)), spec(reference=None))
    assert not any(column.key.startswith("rank_") for column in missing.columns)


def test_what_is_missing_is_a_dash_and_told_once() -> None:
    blocks = [setting("a", 0.1, "x"), setting("b", 10, "x"), setting("a", 1, "y")]
    table = build_grid(study(at(0.1)), spec(settings=blocks, reference=None))
    assert isinstance(cell(table, "FedAvg", "a_overall", "x"), Measure)
    assert [cell(table, "FedAvg", key, "x") for key in ("b_overall", "b_tail")] == [None, None]
    # Block y has no setting in group b at all, and no runs in group a.
    assert set(table.rows[2][2:]) == {None}
    assert table.notes.count("No finished run in: x, b; y, a.") == 1
    assert not any(note.startswith("No finished run fits") for note in table.notes)


def test_published_numbers_alone_have_no_facts() -> None:
    table = build_grid(no_runs(), spec(notes=("Mind this.",)), PUBLISHED)
    assert cell(table, "FedAvg", "alpha_10_tail_published") == Measure(20.0)
    assert table.facts == ()
    assert table.notes == ("No finished run fits: the numbers are the published ones alone.", "Mind this.")
    for renderer in RENDERERS.values():
        assert "61.5" in renderer(table)


def test_facts_are_said_by_setting_only_where_they_differ() -> None:
    facts = dict(build_grid(study([*at(0.1), *at(10)]), spec(), PUBLISHED).facts)
    assert facts["seeds"] == "1, 2, 3"
    assert facts["setting"].startswith("α = 0.1: alpha 0.1, ") and "; α = 10: alpha 10, " in facts["setting"]
    other = [*at(0.1), *at(10, 0.0, **{"version.torch": "2.10"})]
    versions = dict(build_grid(study(other), spec(), PUBLISHED).facts)["versions"]
    assert versions.startswith("α = 0.1: fedrela-bench 0.1.0, torch 2.9") and "α = 10: " in versions


def test_uneven_seeds_are_marked_with_the_setting_that_has_fewer() -> None:
    short = [item for item in at(10) if not (item["kind"] == "cell" and item["seed"] == "3")]
    table = build_grid(study([*at(0.1), *short]), spec(), PUBLISHED)
    assert [line[0] for line in table.rows] == ["FedAvg", "FedAvg + FedReLa ‡"]
    assert [line[-1] for line in table.rows] == [3, "2 to 3"]
    note = next(note for note in table.notes if note.startswith("‡"))
    assert note.startswith("‡ α = 10: ")
    assert note == table.notes[0]


def test_a_row_that_several_configurations_fit_is_refused() -> None:
    wide = [BASE, {"name": "any", "runs": {"kind": "cell"}}]
    with pytest.raises(ConfigError, match=r"α = 0\.1: 2 configurations fit the row"):
        build_grid(study([*at(0.1), *at(10)]), spec(rows=wide))
    best = [BASE, {"name": "best", "runs": {"kind": "cell"}, "choose": "best:tail"}]
    table = build_grid(study([*at(0.1), *at(10)]), spec(rows=best, reference=None))
    assert isinstance(cell(table, "best", "alpha_10_tail"), Measure)


def test_optional_rows_appear_where_a_setting_of_their_block_has_runs() -> None:
    wanted = [BASE, {"name": "more", "runs": {"kind": "cell", "relabel.tau": 0.1}, "optional": True}]
    only_skewed = [*at(0.1), *(item for item in at(10) if item["kind"] == "trunk")]
    side = build_grid(study(only_skewed), spec(rows=wanted, reference=None))
    assert [line[0] for line in side.rows] == ["FedAvg", "more"]
    assert cell(side, "more", "alpha_10_overall") is None
    below = [setting("", 0.1, "x"), setting("", 10, "y")]
    stacked = build_grid(study(only_skewed), spec(rows=wanted, settings=below, reference=None))
    assert [line[:2] for line in stacked.rows] == [("x", "FedAvg"), ("x", "more"), ("y", "FedAvg")]


def test_a_row_may_have_another_round_rule() -> None:
    best = {**OURS, "name": "best round", "round_rule": "best_oracle"}
    table = build_grid(study([*at(0.1), *at(10)]), spec(rows=[BASE, OURS, best], reference=None))
    honest, chosen = (cell(table, name, "alpha_10_overall") for name in ("FedAvg + FedReLa", "best round"))
    assert isinstance(honest, Measure) and isinstance(chosen, Measure)
    assert (honest.value, chosen.value) == (pytest.approx(65), pytest.approx(66))
    assert (honest.marks, chosen.marks) == ("", "†")
    gain = cell(table, "best round", "alpha_10_overall_gain")
    assert isinstance(gain, Gain) and gain.value == pytest.approx(3)
    assert any(note.startswith("Round rule of best round") and "test accuracy itself" in note for note in table.notes)
    assert dict(table.facts)["round rule"].startswith("last5")


def test_sums_and_counts() -> None:
    changed = {"metric:relabel/changed": 30.0, "param:federation.clients": "4"}
    runs = study([*at(0.1, 0.0, **changed), *at(10, 0.0, **changed)])
    wanted = spec(metrics=["overall+tail", "relabeled_per_client"])
    table = build_grid(runs, wanted, PUBLISHED)
    total = cell(table, "FedAvg + FedReLa", "alpha_10_overall+tail")
    assert isinstance(total, Measure) and total.value == pytest.approx(65 + 20)
    gain = cell(table, "FedAvg + FedReLa", "alpha_10_overall+tail_gain")
    assert isinstance(gain, Gain) and gain.value == pytest.approx(3 + 10)
    assert cell(table, "FedAvg + FedReLa", "alpha_10_overall+tail_gain_published") == Gain(11.5)
    assert cell(table, "FedAvg + FedReLa", "alpha_0_1_overall+tail_published") is None
    ours, base = (cell(table, name, "alpha_10_relabeled_per_client") for name in ("FedAvg + FedReLa", "FedAvg"))
    assert ours == Measure(7.5, 0.0, 3) and base == Measure(0.0, 0.0, 3)
    assert not any("relabeled_per_client_gain" in column.key for column in table.columns)


def test_a_head_beside_the_scored_one(tmp_path: Path) -> None:
    for run_id in study([*at(0.1), *at(10)]).frame["run_id"]:
        value = 0.42 if "trunk" in run_id else 0.45
        journal(tmp_path / run_id, range(1, 11), {"test/overall.other": value, "test/tail.other": 0.1})
    runs = replace(study([*at(0.1), *at(10)]), artifacts=Journals(tmp_path))
    rows_ = [{**BASE, "name": "other", "head": "other"}, {**OURS, "name": "ours, other", "head": "other"}, BASE]
    table = build_grid(runs, spec(rows=rows_), PUBLISHED)
    values = [cell(table, name, "alpha_10_overall") for name in ("other", "FedAvg")]
    assert [value.value for value in values if isinstance(value, Measure)] == [pytest.approx(42), pytest.approx(62)]
    gain = cell(table, "ours, other", "alpha_10_overall_gain")
    assert isinstance(gain, Gain) and gain.value == pytest.approx(3)
    assert cell(table, "ours, other", "alpha_10_overall_published") == Measure(61.5)
    assert any("accuracies of the head other" in note for note in table.notes)


class Journals:
    """Artifacts of runs that are folders of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self, run_id: str) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in (self.path / run_id).glob("*")))

    def read(self, run_id: str, name: str) -> bytes:
        return (self.path / run_id / name).read_bytes()


def journal(folder: Path, rounds: range, metrics: Mapping[str, float]) -> None:
    folder.mkdir(parents=True)
    lines = [{"round": at, "result": {"metrics": dict(metrics)}} for at in rounds]
    (folder / "rounds.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def test_curves_of_other_heads_come_from_the_journal(tmp_path: Path) -> None:
    both = {"test/tail.realign": 0.25, "test/tail": 0.5}
    for name, rounds in (("trunk", range(1, 4)), ("cell", range(5, 11)), ("short", range(8, 11))):
        journal(tmp_path / name, rounds, both)
    runs = replace(study(), artifacts=Journals(tmp_path), load_history=lambda run_id, metric: pd.Series({1: 0.75}))
    assert runs.history("trunk", "test/tail").tolist() == [0.75]
    assert runs.history("trunk", "test/tail.realign").to_dict() == {1: 0.25, 2: 0.25, 3: 0.25}
    assert list(runs.history("cell", "test/tail.realign").index) == [5, 6, 7, 8, 9, 10]
    # Fewer own rounds than last5 averages: the rest are the trunk's, and a mean of these alone would be another rule.
    assert runs.history("short", "test/tail.realign").empty
    assert runs.history("nobody", "test/tail.realign").empty


# views ---------------------------------------------------------------------------------------------------------------


def test_views_choose_settings_by_name_block_group_or_dataset() -> None:
    blocks = [setting("α = 0.1", 0.1, "x"), setting("α = 10", 10, "x"), setting("α = 0.1", 0.1, "y, z")]
    wanted = spec(settings=blocks)
    for name, titles in (
        ("alpha 0.1", ["x, α = 0.1", "y, z, α = 0.1"]),
        ("x", ["x, α = 0.1", "x, α = 10"]),
        ("Y, Z, α = 0.1", ["y, z, α = 0.1"]),
        ("digits_lt", ["x, α = 0.1", "x, α = 10", "y, z, α = 0.1"]),
    ):
        assert [item.title for item in View((name,)).of(wanted).settings] == titles
    with pytest.raises(ConfigError, match=r"unknown setting --setting y, α = 0\.1; did you mean"):
        View(("y, α = 0.1",)).of(wanted)


def test_views_of_a_report_on_one_study_are_refused() -> None:
    alone = spec(settings=[], metrics=["overall"])
    assert View().of(alone) is alone
    with pytest.raises(ConfigError, match="no settings"):
        View(stacked=True).of(alone)
    with pytest.raises(ConfigError, match="unknown part --show gains; did you mean gain"):
        parse_show("value,gains")
    assert parse_show("gain_published, value") == ("value", "gain_published")


def test_the_same_numbers_stacked() -> None:
    runs = study([*at(0.1), *at(10, 0.1)])
    beside, below = (build_grid(runs, View(stacked=stacked).of(spec()), PUBLISHED) for stacked in (False, True))
    for name, title in (("alpha_0_1", "α = 0.1"), ("alpha_10", "α = 10")):
        for key in ("overall", "tail_gain", "overall_published"):
            assert cell(beside, "FedAvg + FedReLa", f"{name}_{key}") == cell(below, "FedAvg + FedReLa", key, title)


@given(st.text(max_size=30))
def test_slugs_are_safe_names(text: str) -> None:
    assert slug(slug(text)) == slug(text)
    assert all(letter.isascii() and (letter.isalnum() or letter == "_") for letter in slug(text))


# several studies -----------------------------------------------------------------------------------------------------


def test_studies_are_read_as_one_and_shared_runs_count_once() -> None:
    first = study(at(0.1))
    shared = [item for item in at(0.1) if item["kind"] == "trunk"]
    renamed = [{**item, "run_id": f"again-{item['run_id']}"} for item in shared]
    second = study([*at(10), *renamed])
    both = merged([first, second])
    assert len(both.frame) == len(first.frame) + len(at(10))
    table = build_grid(both, spec(), PUBLISHED)
    apart = build_grid(study([*at(0.1), *at(10)]), spec(), PUBLISHED)
    assert table.rows == apart.rows
    assert (
        merged([second, first]).frame["run_id"].tolist() != []
        and build_grid(merged([second, first]), spec(), PUBLISHED).rows == table.rows
    )
    assert merged([first]) is first


def test_seeds_of_one_configuration_in_two_studies_are_one_row() -> None:
    parts = [[item for item in at(0.1) if item["seed"] in seeds] for seeds in (("1",), ("2", "3"))]
    for number, part in enumerate(parts):
        for item in part:
            item["config_key"] = f"study {number}/{item['config_key']}"
            item["param:seed"] = item["seed"]
    both = merged([study(part) for part in parts])
    table = build_grid(both, spec(settings=TWO[:1], reference=None))
    assert [line[-1] for line in table.rows] == [3, 3]


def test_an_unfinished_run_gives_way_to_the_finished_one() -> None:
    begun = [{**item, "run_status": "KILLED", "run_id": f"begun-{item['run_id']}"} for item in at(0.1)]
    both = merged([study(begun), study(at(0.1))])
    assert set(both.frame["run_status"]) == {"FINISHED"}
    assert len(both.frame) == len(at(0.1))


def test_a_run_folder_is_the_studies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.json").touch()
    (tmp_path / "store").mkdir()
    assert study_folders(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert study_folders(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(ConfigError, match="not a study folder"):
        study_folders(tmp_path / "store")

    def read(path: Path, uri: str | None) -> StudyRuns:
        if path.name == "a":
            raise StoreError("MLflow holds no run of this study yet")
        return study(at(10))

    monkeypatch.setattr(gather, "read_study", read)
    assert len(read_studies([tmp_path]).frame) == len(at(10))
    with pytest.raises(StoreError, match="no run of this study yet"):
        read_studies([tmp_path / "a"])


def test_the_fake_study_has_what_these_tests_rely_on() -> None:
    assert len(rows()) == 3 * (1 + len(GAINS))
    assert row("trunk", "baseline/fedavg", 1)["run_status"] == "FINISHED"
