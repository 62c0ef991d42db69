"""From runs and a spec to the table: pairing, choice, marks and facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.arms import automatic_label, filtered, pareto
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.defaults import with_defaults
from fedrela_bench.reporting.grid import setting_spec
from fedrela_bench.reporting.render import RENDERERS
from fedrela_bench.reporting.select import split_text
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec, load_spec
from fedrela_bench.reporting.table import Gain, Measure, Table
from tests.reporting.fakes import row, rows, study, two_algorithms


def spec(**given: Any) -> ReportSpec:
    values = {"title": "t", "metrics": ["overall", "tail"], "rows": [{"runs": {"kind": "trunk"}}]}
    return ReportSpec.model_validate({**values, **given})


def table_of(spec_rows: list[dict[str, Any]], **given: Any) -> Table:
    return build_table(study(), spec(rows=spec_rows, **given))


def column(table: Table, key: str) -> list[Any]:
    place = [item.key for item in table.columns].index(key)
    return [line[place] for line in table.rows]


def test_means_and_paired_gains() -> None:
    table = table_of([{"runs": {"kind": "trunk"}}, {"runs": {"kind": "cell", "relabel.tau": 0.05}}])
    base, ours = column(table, "overall")
    assert (base.value, base.std, base.n) == (pytest.approx(62), pytest.approx(2), 3)
    assert ours.value == pytest.approx(65)
    gain = column(table, "overall_gain")
    assert gain[0] is None
    assert (gain[1].value, gain[1].n) == (pytest.approx(3), 3)
    assert gain[1].low == pytest.approx(3 - 2.484138, abs=1e-6)
    assert (gain[1].boot_low, gain[1].boot_high) == (pytest.approx(2), pytest.approx(4))
    assert column(table, "n") == [3, 3]


def test_labels_say_what_a_configuration_sets() -> None:
    table = table_of([{"runs": {"kind": "trunk"}}, {"runs": {"kind": "cell"}, "choose": "each"}])
    assert column(table, "arm") == ["fedavg", "fedavg, τ=0.05, T=8 of 10", "fedavg, τ=0.1, T=8 of 10"]


def test_a_searched_training_field_stands_in_the_label() -> None:
    changed = [row("cell", "b", seed, **{"param:training.lr": "0.1"}) for seed in (1, 2, 3)]
    runs = study([*(item for item in rows() if item["config_key"] != "b"), *changed])
    group = filtered(runs.frame, {"kind": "cell", "relabel.tau": 0.1})
    assert automatic_label(runs.frame, group) == "fedavg, τ=0.1, T=8 of 10, lr=0.1"


def with_option(value: dict[str, str]) -> StudyRuns:
    """The fake study, some of whose configurations record an option of the algorithm."""
    name = "param:federation.options.server_lr"
    recorded = {config: {name: text} for config, text in value.items()}
    return study([{**item, **recorded.get(item["config_key"], {})} for item in rows()])


@pytest.mark.parametrize(("known", "shown"), [({"server_lr": 1.0}, "1"), ({}, "default")])
def test_an_option_that_a_run_does_not_record_stands_in_the_label_at_its_default(
    known: dict[str, Any], shown: str
) -> None:
    runs = with_defaults(with_option({"b": "0.3"}), lambda algorithm: known)
    table = build_table(runs, spec(rows=EACH))
    assert column(table, "arm") == [
        f"fedavg, server_lr={shown}",
        f"fedavg, τ=0.05, T=8 of 10, server_lr={shown}",
        "fedavg, τ=0.1, T=8 of 10, server_lr=0.3",
    ]


def test_every_option_that_differs_is_named_and_none_that_does_not() -> None:
    runs = with_option({"baseline/fedavg": "0.3", "a": "0.3", "b": "0.3"})
    assert "server_lr" not in str(column(build_table(runs, spec(rows=EACH)), "arm"))
    assert with_defaults(runs, lambda algorithm: {"server_lr": 1.0}) is runs
    runs = with_defaults(with_option({"a": "1.0"}), lambda algorithm: {"server_lr": 1.0})
    assert "server_lr" not in str(column(build_table(runs, spec(rows=EACH)), "arm"))


def test_a_run_at_the_default_is_paired_whether_or_not_it_records_that() -> None:
    said = with_option({"a": "1.0"}).frame.to_dict("records")
    said = [{**item, "trunk_key": f"said/{item['seed']}"} if item["config_key"] == "a" else item for item in said]
    alike = with_defaults(study(said), lambda algorithm: {"server_lr": 1.0})
    assert [gain and round(gain.value, 6) for gain in column(build_table(alike, spec(rows=EACH)), "overall_gain")] == [
        None,
        3.0,
        0.0,
    ]
    other = with_defaults(study(said), lambda algorithm: {"server_lr": 0.5})
    table = build_table(other, spec(rows=EACH))
    assert column(table, "overall_gain")[1] is None and column(table, "overall_gain")[2] is not None
    label = column(table, "arm")[1]
    why = "(federation.options.server_lr 1.0 against 0.5)"
    assert f"Not paired, since the baseline is another experiment: {label}, seeds 1, 2, 3 {why}." in table.notes


@pytest.mark.parametrize(
    ("choose", "taus"),
    [("best:overall", ["0.05"]), ("best:tail", ["0.1"]), ("front", ["0.05", "0.1"]), ("each", ["0.05", "0.1"])],
)
def test_choice_of_configurations(choose: str, taus: list[str]) -> None:
    table = table_of([{"runs": {"kind": "cell"}, "choose": choose}])
    assert [text.split("τ=")[1].split(",")[0] for text in column(table, "arm")] == taus


def test_only_refuses_several_configurations() -> None:
    with pytest.raises(ConfigError, match="2 configurations fit the row"):
        table_of([{"runs": {"kind": "cell"}}])


def test_optional_rows_are_left_out_or_not_repeated() -> None:
    wanted = {"kind": "cell", "relabel.tau": 0.05}
    table = table_of(
        [
            {"runs": wanted},
            {"runs": wanted, "choose": "each", "optional": True},
            {"runs": {"kind": "cell", "relabel.tau": 0.5}, "optional": True},
        ]
    )
    assert len(table.rows) == 1


def test_a_row_without_runs_is_a_row_of_dashes() -> None:
    table = table_of([{"name": "scaffold", "runs": {"algorithm": "scaffold"}}, {"runs": {"kind": "trunk"}}])
    assert table.rows[0] == ("scaffold", None, None, None, None, None)
    assert "No finished run fits: scaffold." in table.notes


def test_a_group_without_classes_is_a_dash() -> None:
    table = table_of([{"runs": {"kind": "trunk"}}], metrics=["medium"])
    assert column(table, "medium") == [None]


def test_one_seed_has_no_spread_and_no_interval() -> None:
    table = build_table(study(rows([2])), spec(rows=[{"runs": {"kind": "cell"}, "choose": "best:overall"}]))
    measure, gain = column(table, "overall")[0], column(table, "overall_gain")[0]
    assert (measure.std, measure.n) == (None, 1)
    assert gain == Gain(gain.value, None, None, 1)
    assert gain.value == pytest.approx(4)


def test_facts_are_complete() -> None:
    facts = dict(table_of([{"runs": {"kind": "trunk"}}]).facts)
    assert facts["round rule"] == "last5 (mean of the last five evaluated rounds)"
    assert facts["split"] == "test (the half of the test images that does not select; fixed, class-balanced)"
    assert (facts["seeds"], facts["selection"], facts["dataset"]) == ("1, 2, 3", "test_slice", "digits_lt")
    assert facts["setting"] == "rounds 10, lr 0.05"
    assert facts["dataset digest"] == "seed 1: d1; seed 2: d2; seed 3: d3"
    assert facts["versions"] == "fedrela-bench 0.1.0, torch 2.9, simulation 1"
    assert "ddof 1" in facts["statistic"]
    assert "95% t interval]; intervals from 3 pairs on (with two, the t interval is 12.7" in facts["statistic"]
    assert "exact up to 8 pairs" in facts["statistic"]


def test_oracle_numbers_carry_a_dagger() -> None:
    oracle = study([{**item, "selection": "oracle"} for item in rows()])
    table = build_table(oracle, spec(rows=[{"runs": {"kind": "cell"}, "choose": "best:tail"}]))
    assert column(table, "overall")[0].marks == "†"
    assert column(table, "overall_gain")[0].marks == "†"
    assert dict(table.facts)["selection"] == "oracle †"
    assert table.notes[0].startswith("† oracle")
    best = table_of([{"runs": {"kind": "trunk"}}], round_rule="best_oracle")
    assert column(best, "overall")[0].marks == "†"
    assert column(table_of([{"runs": {"kind": "trunk"}}], round_rule="best_selected"), "overall")[0].marks == ""


EACH: list[dict[str, Any]] = [{"runs": {"kind": "trunk"}}, {"runs": {"kind": "cell"}, "choose": "each"}]


def changed(**changes: dict[str, Any]) -> Table:
    """The table of all arms where runs differ, such as ``cell_a_2={"device": "cuda"}``."""
    names = {item["run_id"]: item["run_id"].replace("-", "_").replace("/", "_") for item in rows()}
    given_rows = [{**item, **changes.get(names[item["run_id"]], {})} for item in rows()]
    assert set(changes) <= set(names.values())
    return build_table(study(given_rows), spec(rows=EACH))


def test_uneven_seeds_versions_and_digests_are_marked() -> None:
    given_rows = [item for item in rows() if item["run_id"] != "cell-a-3"]
    given_rows[0] |= {"version.torch": "2.8"}
    given_rows[4] |= {"data_digest": "other"}
    table = build_table(study(given_rows), spec(rows=EACH))
    assert column(table, "arm") == ["fedavg §", "fedavg, τ=0.05, T=8 of 10 ‡§", "fedavg, τ=0.1, T=8 of 10"]
    assert table.notes[0] == "‡ fewer than 3 seeds (fedavg, τ=0.05, T=8 of 10: 2)."
    assert table.notes[2] == (
        "§ not like most runs of this table in what a comparison should share (fedavg: torch 2.8 in 1 of 3 runs; "
        "fedavg, τ=0.05, T=8 of 10: data of seed 2 other)."
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "cuda"}, "device cuda in 1 of 3 runs"),
        ({"version.fedrela_bench": "0.2.0"}, "fedrela-bench 0.2.0 in 1 of 3 runs"),
        ({"simulation_version": "2"}, "simulation 2 in 1 of 3 runs"),
        ({"param:federation.rounds": "20"}, "rounds 20 in 1 of 3 runs"),
        ({"last_round": 7.0}, "last round 7 in 1 of 3 runs"),
        ({"selection": "oracle"}, "selection oracle in 1 of 3 runs"),
    ],
)
def test_whatever_a_run_does_not_share_with_most_is_marked_and_told(changes: dict[str, Any], reason: str) -> None:
    given_rows = [{"last_round": 10.0, **item} for item in rows()]
    given_rows[4] |= changes
    table = build_table(study(given_rows), spec(rows=EACH))
    marked = [label for label in column(table, "arm") if label.endswith("§")]
    assert marked == ["fedavg, τ=0.05, T=8 of 10 §"]
    assert reason in next(note for note in table.notes if note.startswith("§"))


def test_where_no_value_is_that_of_most_runs_every_row_is_marked() -> None:
    torch = {"version.torch": "2.8"}
    half = {f"cell_{config}_{seed}": torch for config, seed in (("a", 1), ("a", 2), ("a", 3), ("b", 1))}
    table = changed(**half, cell_b_2={"version.torch": "2.7"})
    assert [label[-1] for label in column(table, "arm")] == ["§", "§", "§"]


def test_what_is_alike_everywhere_is_not_marked() -> None:
    assert not any("§" in label for label in column(changed(), "arm"))


def test_a_run_is_not_paired_with_a_baseline_on_other_data_or_of_other_length() -> None:
    for wrong in ({"data_digest": "other"}, {"param:federation.rounds": "20"}):
        table = changed(cell_a_2=wrong)
        gain = column(table, "overall_gain")[1]
        # Without seed 2, whose gain is 4 points, 2 and 3 are left.
        assert (gain.value, gain.n, gain.low, gain.marks) == (pytest.approx(2.5), 2, None, "‡")
        name = str(column(table, "arm")[1]).removesuffix(" §")
        note = next(note for note in table.notes if note.startswith("Not paired"))
        assert f"{name}, seed 2 (" in note
        assert f"{name} §, Δ overall: n = 2" in next(note for note in table.notes if "behind a number" in note)


def test_a_baseline_that_did_not_finish_is_no_baseline() -> None:
    given_rows = [{**item, **({"run_status": "RUNNING"} if item["kind"] == "trunk" else {})} for item in rows()]
    table = build_table(study(given_rows), spec(rows=[EACH[1]], round_rule="last"))
    assert column(table, "overall_gain") == [None, None]


def test_two_different_computations_of_one_seed_are_refused() -> None:
    again = {**row("cell", "a", 2), "run_id": "again", "key": "a/2'", "device": "cuda", "data_digest": "new"}
    with pytest.raises(ConfigError) as caught:
        build_table(study([*rows(), again]), spec(rows=EACH))
    told = "same configuration and seed 2 are different computations (data_digest d2 and new, device cpu and cuda)"
    assert told in str(caught.value)
    assert "data_digest: VALUE" in str(caught.value)


def test_one_computation_listed_twice_counts_once() -> None:
    again = {**row("cell", "a", 2), "run_id": "again"}
    table = build_table(study([*rows(), again]), spec(rows=EACH))
    assert column(table, "n") == [3, 3, 3]


def test_a_metric_that_some_seeds_lack_is_marked_with_its_number_of_seeds() -> None:
    table = changed(cell_a_1={"metric:final/test/tail": float("nan")})
    measure = column(table, "tail")[1]
    assert (measure.n, measure.marks) == (2, "‡")
    assert "fedavg, τ=0.05, T=8 of 10, tail: n = 2" in next(note for note in table.notes if "behind a number" in note)


def test_diverged_and_unfinished_runs_are_left_out_and_counted() -> None:
    given_rows = rows()
    given_rows[3] |= {"status": "diverged"}
    given_rows[4] |= {"run_status": "RUNNING"}
    table = build_table(study(given_rows), spec(rows=[{"runs": {"kind": "cell", "relabel.tau": 0.05}}]))
    assert column(table, "n") == [1]
    assert "Left out: 1 runs that diverged." in table.notes
    given_rows[4] |= {"status": ""}
    given_rows[5] |= {"status": "stopped", "run_status": "KILLED"}
    given_rows[6] |= {"status": "failed", "run_status": "FAILED"}
    table = build_table(study(given_rows), spec(rows=[{"runs": {"kind": "trunk"}}]))
    left_out = [note for note in table.notes if note.startswith("Left out")]
    assert sorted(left_out) == [
        "Left out: 1 runs that are not finished.",
        "Left out: 1 runs that diverged.",
        "Left out: 1 runs that failed.",
        "Left out: 1 runs that were stopped for gaining too little.",
    ]


def test_another_dataset_is_refused() -> None:
    with pytest.raises(ConfigError, match="about cifar100_lt, the study about digits_lt"):
        table_of([{"runs": {"kind": "trunk"}}], dataset="cifar100_lt")


def test_published_numbers_stand_beside_ours() -> None:
    paper, published = load_spec("paper_table14")
    alone = next(setting for setting in paper.settings if setting.config["data.alpha"] == 0.3)
    runs = study(
        [
            {
                **item,
                "profile": "step",
                "param:federation.algorithm": "fedavg",
                "metric:final/test/minority": 0.4,
                "metric:final/val/minority": 0.3 if item["config_key"] == "a" else 0.2,
            }
            for item in rows()
        ],
        "fashion_mnist_step",
    )
    table = build_table(runs, setting_spec(paper, alone), published)
    published_values = {name: [cell.value for cell in column(table, f"{name}_published")] for name in paper.metrics}
    assert published_values["minority"] == [50.5, 75.7, 50.0, 74.9, 55.03, 77.9, 44.43, 74.77, 53.43, 64.7]
    assert published_values["overall"] == [78.46, 83.84, 78.48, 83.63, 76.67, 84.46, 77.12, 84.47, 81.42, 84.56]
    gains = column(table, "minority_gain_published")
    assert gains[0] is None
    assert gains[1].value == pytest.approx(25.2)
    ours = column(table, "minority")
    assert [cell.value for cell in ours[:2]] == [pytest.approx(40)] * 2
    assert ours[2:] == [None] * 8


def test_the_same_runs_in_any_order_give_the_same_bytes() -> None:
    shipped, published = load_spec("study")
    texts = {
        name: {renderer(build_table(study(given), shipped, published)) for given in (rows(), rows()[::-1])}
        for name, renderer in RENDERERS.items()
    }
    assert all(len(found) == 1 for found in texts.values())


def test_a_step_study_has_its_own_groups() -> None:
    shipped, _ = load_spec("study")
    table = build_table(study([{**item, "profile": "step"} for item in rows()]), shipped)
    assert [item.key for item in table.columns if item.kind == "measure"] == ["overall", "majority", "minority"]
    assert isinstance(column(table, "overall")[0], Measure)


POINTS = st.dictionaries(st.text("abcdef", min_size=1), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1)


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points: dict[str, tuple[float, ...]]) -> None:
    front = pareto(points)
    assert front
    for name, point in points.items():
        beaten = any(o[0] >= point[0] and o[1] >= point[1] and o != point for o in points.values())
        assert (name in front) != beaten


def test_points_without_a_number_are_not_on_the_front() -> None:
    assert pareto({"a": (float("nan"), 1.0), "b": (0.0, 0.0)}) == ["b"]


@pytest.mark.parametrize("renderer", sorted(RENDERERS))
def test_gains_that_include_a_lower_learning_rate_are_marked(renderer: str) -> None:
    slowed = {"param:relabel.post_relabel_lr_scale": "0.1"}
    runs = study([{**item, **(slowed if item["config_key"] == "a" else {})} for item in rows()])
    table = build_table(runs, spec(rows=[{"runs": {"kind": "trunk"}}, {"runs": {"kind": "cell"}, "choose": "each"}]))
    assert [label.endswith("¶") for label in column(table, "arm")] == [False, True, False]
    note = next(note for note in table.notes if note.startswith("¶"))
    assert "multiplied by 0.1 from T on" in note
    assert "control arm" in note
    assert RENDERERS[renderer](table)


def test_the_control_arm_itself_is_not_marked() -> None:
    control = {"param:relabel.post_relabel_lr_scale": "0.1", "param:relabel.tau": "0.0"}
    runs = study([{**item, **(control if item["config_key"] == "a" else {})} for item in rows()])
    table = build_table(runs, spec(rows=[{"runs": {"kind": "cell"}, "choose": "each"}]))
    assert not any("¶" in label for label in column(table, "arm"))


SHIPPED_ROWS = [
    "fedavg (baseline)",
    "fedavg, τ=0.05, T=8 of 10 (paper's default)",
    "fedavg, τ=0.1, T=8 of 10",
    "fedetf (baseline)",
    "fedetf, τ=0.05, T=8 of 10 (paper's default)",
    "fedetf, τ=0.1, T=8 of 10",
]


def test_every_algorithm_has_its_baseline_and_its_own_front() -> None:
    shipped, _ = load_spec("study")
    table = build_table(study(two_algorithms()), shipped)
    assert column(table, "arm") == SHIPPED_ROWS
    assert [cell and round(cell.value, 6) for cell in column(table, "overall_gain")] == [None, 3.0, 0.0] * 2
    assert any("Pareto front on the selecting images" in note for note in table.notes)


@pytest.mark.parametrize(
    ("profile", "partition", "shown"),
    [
        ("lt", "dirichlet", "alpha 0.3, imbalance factor 100, "),
        ("natural", "natural", ""),
        ("balanced", "dirichlet", "alpha 0.3, "),
        ("step", "iid", "imbalance factor 100, "),
    ],
)
def test_the_setting_leaves_out_what_nothing_reads(profile: str, partition: str, shown: str) -> None:
    fields = {"param:data.alpha": "0.3", "param:data.imbalance_factor": "100", "param:data.partition": partition}
    runs = study([{**item, **fields, "profile": profile} for item in rows()])
    assert dict(build_table(runs, spec()).facts)["setting"] == f"{shown}rounds 10, lr 0.05"


def test_the_default_setting_off_the_front_comes_last() -> None:
    shipped, _ = load_spec("study")
    worse = {"metric:final/val/overall": 0.1, "metric:final/val/tail": 0.01}
    given_rows = [{**item, **(worse if item["config_key"].endswith("a") else {})} for item in two_algorithms()]
    labels = column(build_table(study(given_rows), shipped), "arm")
    assert labels == [SHIPPED_ROWS[place] for place in (0, 2, 1, 3, 5, 4)]


def test_the_front_is_in_order_of_overall_whatever_the_objectives() -> None:
    shipped, _ = load_spec("study")
    runs = replace(study(two_algorithms()), objectives=("tail", "overall"))
    assert column(build_table(runs, shipped), "arm") == SHIPPED_ROWS


def test_a_changed_option_is_not_the_default_setting() -> None:
    shipped, _ = load_spec("study")
    slowed = {"param:relabel.post_relabel_lr_scale": "0.1"}
    runs = study([{**item, **(slowed if item["config_key"] == "a" else {})} for item in rows()])
    labels = column(build_table(runs, shipped), "arm")
    assert len(labels) == 3
    assert not any("paper's default" in label for label in labels)


def test_an_algorithm_without_a_baseline_says_whose_is_missing() -> None:
    shipped, _ = load_spec("study")
    given_rows = [item for item in two_algorithms() if (item["kind"], item["algorithm"]) != ("trunk", "fedetf")]
    table = build_table(study(given_rows), shipped)
    lines = dict(zip(column(table, "arm"), column(table, "overall_gain"), strict=True))
    missing = next(label for label in lines if "kind=trunk" in label)
    assert "algorithm=fedetf" in missing
    assert lines["fedetf, τ=0.1, T=8 of 10"] is None


def test_options_that_runs_do_not_record_are_at_their_defaults() -> None:
    frame = study().frame
    assert len(filtered(frame, {"relabel.score": "zscore"})) == 6
    assert filtered(frame, {"relabel.score": "minmax"}).empty
    assert filtered(frame, {"training.momentum": 0.9}).empty


@pytest.mark.parametrize(("seeds", "given"), [([1, 2], False), ([1, 2, 3], True)])
def test_intervals_from_three_seeds_on(seeds: list[int], given: bool) -> None:
    table = build_table(study(rows(seeds)), spec(rows=[{"runs": {"kind": "cell"}, "choose": "best:overall"}]))
    gain = column(table, "overall_gain")[0]
    assert gain.n == len(seeds)
    assert (gain.low is not None, gain.high is not None) == (given, given)


@pytest.mark.parametrize(
    ("split", "selections", "words"),
    [
        ("test", ["test_slice"], "test (the half of the test images that does not select; fixed, class-balanced)"),
        ("test", ["none"], "test (all test images)"),
        ("test", ["oracle"], "test (all test images, which also select)"),
        ("val", ["test_slice"], "val (the half of the test images that selects)"),
    ],
)
def test_splits_in_words(split: str, selections: list[str], words: str) -> None:
    assert split_text(split, selections) == words


def test_filters_on_no_runs_leave_the_columns() -> None:
    none = study().frame.iloc[:0]
    assert list(filtered(none, {"kind": "cell"}).columns) == list(none.columns)
