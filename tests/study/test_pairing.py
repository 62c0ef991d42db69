"""A gain is over the baseline of the same configuration and seed, or there is none and it is said why."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.algorithms import default_options
from fedrela_bench.config import parse
from fedrela_bench.reporting.build import build_table
from fedrela_bench.reporting.defaults import with_defaults
from fedrela_bench.reporting.source import read_study
from fedrela_bench.reporting.spec import ReportSpec, load_spec
from fedrela_bench.reporting.table import Gain
from fedrela_bench.study.confirm import Arm, confirmed_rows
from fedrela_bench.study.output import render_text
from fedrela_bench.study.pairing import Baselines
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.results import Row, StudyResult
from fedrela_bench.study.runner import tune
from fedrela_bench.study.trunk import run_trunk
from fedrela_bench.yaml_io import parse_yaml
from tests.study.drive import mlflow_runs
from tests.study.fakes import FakeDataset, request
from tests.study.test_ledger import ledger_for, plan_for, work

MU = "federation.options.mu"
SPACE = {
    "algorithm": "fedprox",
    "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}, MU: {"choice": [0.01, 0.1]}},
    "seeds": [1, 2],
}


BASE_OF_01 = "fedprox, mu=0.1 (baseline)"
NOTE = "fedprox: federation.options.mu 0.1 against 0.01"


def baselines(plan: Plan, mu: float | None = None) -> None:
    """Compute FedProx's baselines, or those with another value of mu."""
    for trunk in plan.trunks():
        config = trunk.config if mu is None else trunk.config.replace({MU: mu})
        run_trunk(config, FakeDataset(f"data-{trunk.seed}"), plan.runtime)


def searched(out: Path, mu: Sequence[float | None] = (None,), **changes: Any) -> StudyResult:
    """A study of four configurations whose runs are all there, so that nothing has to be started."""
    asked = request(out, SPACE, trials=4, sampler="grid", **changes)
    plan = plan_for(asked)
    for value in mu:
        baselines(plan, value)
    work(ledger_for(plan))
    return tune(asked)


def by_mu(rows: Sequence[Row]) -> dict[float, list[Row]]:
    return {mu: [row for row in rows if row.point.get(MU) == mu] for mu in (0.01, 0.1)}


def test_a_gain_is_over_a_baseline_of_the_same_options_only(tmp_path: Path) -> None:
    result = searched(tmp_path)
    rows = by_mu(result.trials)
    assert all(row.gains and row.paired and not row.unlike for row in rows[0.01])  # the default, said or not
    assert all(not row.gains and not row.paired and row.unlike == {MU: (0.1, 0.01)} for row in rows[0.1])
    assert [row.label for row in result.baselines] == ["fedprox (baseline)"]
    text = " ".join(render_text(result).split())
    assert f"no Δ where more than relabelling differs from the baseline ({NOTE})" in text
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert {str(row["unlike_baseline"]) for row in values["trials"]} == {"{}", "{'federation.options.mu': [0.1, 0.01]}"}
    with (tmp_path / "trials.csv").open() as file:
        table = list(csv.DictReader(file))
    for row in table[1:]:
        assert bool(row["gain val/tail"]) == (row[MU] == "0.01")
        assert row["baseline differs"] == ("" if row[MU] == "0.01" else f"{MU} 0.1 against 0.01")


def test_the_command_for_a_missing_baseline_is_told_as_it_can_be_typed(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    command = f"fedrela-bench tune --dataset d --space my.yaml --cpus-per-trial 1 --device=cpu --race --out {out}"
    result = searched(out, command=command, data_dir=tmp_path)
    ((name, line),) = result.baseline_commands.items()
    assert name == "for the Δ of fedprox mu=0.1, then repeat the study's command"
    assert f"\n{name}: {line}\n" in render_text(result)
    file = out / "baselines" / "fedprox_mu_0.1.yaml"
    assert shlex.split(line) == [
        *("fedrela-bench", "tune", "--algorithm", "fedprox", "--config", str(file)),
        *("--stage", "trunks", "--seeds", "1,2", "--cpus-per-trial", "1", "--device=cpu", "--data-dir", str(tmp_path)),
        *("--store", str(out / "store"), "--out", f"{out}_baseline_fedprox_mu_0.1"),
    ]
    told = parse(parse_yaml(file.read_text(), "baseline"))
    plan = plan_for(request(out, SPACE))
    keys = {plan.runtime.trunk(told.replace({"seed": seed}), plan.digests["fedprox", seed]).key for seed in (1, 2)}
    assert keys == {key for _, _, key in Baselines(plan).runs({"algorithm": "fedprox", "relabel.tau": 0.1, MU: 0.1})}


def test_a_baseline_that_the_store_has_pairs_in_tables_files_and_report_alike(tmp_path: Path) -> None:
    result = searched(tmp_path, (None, 0.1))
    assert all(row.gains and row.paired for row in result.trials) and not result.baseline_commands
    assert [row.label for row in result.baselines] == ["fedprox (baseline)", "fedprox mu=0.1 (baseline)"]
    own = result.baselines[1].outcome.values
    for row in by_mu(result.trials)[0.1]:
        assert row.base == own and row.gains == tuple(a - b for a, b in zip(row.outcome.values, own, strict=True))
    assert "no Δ where" not in render_text(result)
    assert "baseline differs" not in (tmp_path / "trials.csv").read_text().partition("\n")[0]
    trunks = [run for run in mlflow_runs(tmp_path) if run.data.tags.get("kind") == "trunk"]
    assert len(trunks) == 4 and {run.info.status for run in trunks} == {"FINISHED"}
    assert len({run.data.tags["config_key"] for run in trunks}) == 2
    told = reported(tmp_path)
    assert [name for name, gain in told.items() if gain is None] == ["fedprox, mu=0.01 (baseline)", BASE_OF_01]
    for row in result.trials:
        assert told[row_name(row)] == pytest.approx(100 * row.paired["val/tail"].value)


def reported(out: Path) -> dict[str, float | None]:
    """Row to its gain in the tail, of the table that `report` makes of all configurations."""
    table = build_table(with_defaults(read_study(out), default_options), all_rows())
    place = [column.key for column in table.columns].index("tail_gain")
    assert all(isinstance(row[place], Gain | None) for row in table.rows)
    return {str(row[0]): getattr(row[place], "value", None) for row in table.rows}


def all_rows() -> ReportSpec:
    spec, _ = load_spec("study")
    rows = tuple(row.model_copy(update={"choose": "each"}) for row in spec.rows[:2])
    return spec.model_copy(update={"rows": rows, "split": "val"})


def test_the_report_leaves_out_the_gains_that_the_terminal_leaves_out_and_says_why(tmp_path: Path) -> None:
    result = searched(tmp_path)
    told = reported(tmp_path)
    begin, why = "Not paired, since the baseline is another experiment: ", f"seeds 1, 2 ({MU} 0.1 against 0.01)."
    expected = []
    for row in result.trials:
        name, known = row_name(row), row.paired.get("val/tail")
        assert told[name] == (None if known is None else pytest.approx(100 * known.value))
        expected += [f"{begin}{name}, {why}"] if row.unlike else []
    table = build_table(with_defaults(read_study(tmp_path), default_options), all_rows())
    assert sorted(note for note in table.notes if note.startswith("Not paired")) == sorted(expected)


def row_name(row: Row) -> str:
    """As reports have it."""
    return f"fedprox, τ={row.point['relabel.tau']}, T=8 of 10, mu={row.point[MU]}"


def test_a_baseline_of_too_few_seeds_is_none(tmp_path: Path) -> None:
    plan = plan_for(request(tmp_path, SPACE))
    baselines(plan)
    run_trunk(plan.trunks()[0].config.replace({MU: 0.1}), FakeDataset("data-1"), plan.runtime)
    point = {"algorithm": "fedprox", "relabel.tau": 0.05, MU: 0.1}
    arms = [Arm("other", point), Arm("baseline", {**point, "relabel.tau": 0.0})]
    assert confirmed_rows(plan, arms, (1, 2)) == []
    from fedrela_bench.study.cell import run_cell

    for seed in (1, 2):
        run_cell(plan.config(point, seed), FakeDataset(f"data-{seed}"), plan.runtime)
    one, two = confirmed_rows(plan, arms[:1], (1,)), confirmed_rows(plan, arms[:1], (1, 2))
    assert one[0].gains and two[0].gains == () and two[0].unlike == {MU: (0.1, 0.01)}


def test_what_relabels_only_is_paired_without_asking_for_options(tmp_path: Path) -> None:
    asked = request(tmp_path, {**SPACE, "parameters": {"relabel.tau": {"choice": [0.05, 0.1]}}}, trials=2)
    plan = plan_for(asked)
    baselines(plan)
    work(ledger_for(plan))
    result = tune(asked)
    assert all(row.gains and not row.unlike for row in result.trials)
    assert result.trials[0].base == result.baselines[0].outcome.values
