"""Report specs: the shipped ones are right, wrong ones are told all their faults with lines."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.reporting.published import load_published
from fedrela_bench.reporting.settings import RunsSpec, SettingSpec
from fedrela_bench.reporting.spec import find_spec, load_spec, reports_folder

SHIPPED = sorted(reports_folder().rglob("*.yaml"))


def faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_spec(file)
    return caught.value.faults


def test_there_are_shipped_specs() -> None:
    assert {path.stem for path in SHIPPED} >= {"study", "paper_table14"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_are_right_and_say_how_to_use_them(path: Path) -> None:
    spec, published = load_spec(path)
    assert spec.rows
    assert (published is None) == (spec.reference is None)
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert any("fedrela-bench report" in line for line in header)


def test_specs_are_found_by_name_and_near_misses_are_named() -> None:
    assert find_spec("study") == find_spec("study.yaml")
    with pytest.raises(ConfigError, match="did you mean paper_table14"):
        find_spec("paper_tabel14")


def test_all_faults_with_their_lines(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "title: x\n"
        "metric: [overall]\n"
        "round_rule: best\n"
        "min_seeds: 0\n"
        "where: {trainig.lr: 1}\n"
        "rows:\n"
        "  - runs: {knd: trunk}\n"
        "  - {choose: best:speed, runs: {kind: cell}}\n"
        "  - name: no runs\n"
        "  - text\n",
    )
    text = "\n".join(found)
    assert "line 2: unknown field metric; did you mean metrics?" in text
    assert "line 3: round_rule = 'best'" in text
    assert "line 4: min_seeds = 0" in text
    assert "line 5: unknown filter where: trainig.lr; did you mean training.lr?" in text
    assert "unknown filter rows[1].runs: knd; did you mean kind?" in text
    assert "rows[2].choose = 'best:speed' is not a choice" in text
    assert "rows[3].runs" in text
    assert "rows[4] must be a mapping" in text
    assert len(found) == 8


@pytest.mark.parametrize("text", ["title: x\n", "title: x\nrows: []\n", "title: x\nrows: {}\n"])
def test_a_spec_needs_rows(text: str, tmp_path: Path) -> None:
    assert any("at least one row" in fault for fault in faults(tmp_path, text))


def test_reference_files_and_columns_are_checked(tmp_path: Path) -> None:
    rows = "rows: [{runs: {kind: trunk}, reference: {metod: x}}]\n"
    missing = faults(tmp_path, f"title: x\n{rows}reference: {{file: no.csv, label: paper}}\n")
    assert any("published numbers cannot be read" in fault for fault in missing)
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "a.csv").write_text("method,metric,accuracy_pct\nx,overall,1\n")
    wrong = faults(tmp_path, f"title: x\n{rows}reference: {{file: a.csv, label: paper}}\n")
    assert any("unknown published column metod; did you mean method?" in fault for fault in wrong)


def test_a_spec_of_ones_own_can_use_the_shipped_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: x\nrows: [{runs: {kind: trunk}}]\nreference: {file: fedrela.csv, label: paper}\n")
    _, published = load_spec(file)
    assert published is not None
    assert "alpha" in published.columns


def test_two_published_numbers_for_one_cell_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("method,metric,alpha,accuracy_pct\nx,overall,0.1,1\nx,overall,0.3,2\nx,tail,0.1,\n")
    published = load_published(file)
    assert published.value({"method": "x", "alpha": 0.30}) == 2
    assert published.value({"method": "y"}) is None
    with pytest.raises(ConfigError, match="2 published numbers fit metric=overall"):
        published.value({"metric": "overall"})


def test_the_published_numbers_of_the_paper_are_whole() -> None:
    published = load_published(reports_folder() / "published" / "fedrela.csv")
    assert len(published.rows) == 982
    assert {row["table"] for row in published.rows} == {"1", "2", "3", "4", "6", "7", "8", "10", "11", "12", "13", "14"}


def test_published_triples_agree_within_rounding() -> None:
    with (reports_folder() / "published" / "fedrela.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] in ("1", "7")]
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        key = tuple(row[name] for name in row if name not in ("metric", "accuracy_pct", "note"))
        cells.setdefault(key, {})[row["metric"]] = float(row["accuracy_pct"])
    whole = {key: cell for key, cell in cells.items() if {"overall", "majority", "minority"} <= cell.keys()}
    assert len(whole) > 100
    for key, cell in whole.items():
        share = float(key[4]) / 100
        assert cell["overall"] == pytest.approx((1 - share) * cell["majority"] + share * cell["minority"], abs=0.06)


def test_the_format_in_the_documentation_is_a_spec(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reports.md"
    example = re.search(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    file = tmp_path / "example.yaml"
    file.write_text(example[1], encoding="utf-8")
    spec, published = load_spec(file)
    assert spec.settings and spec.runs is not None and published is not None


SETTINGS = "settings:\n  - {dataset: digits_lt}\n"
ROWS = "rows:\n  - {name: a, runs: {kind: trunk}}\n"


def test_all_faults_of_settings_and_runs_with_their_lines(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "title: x\n"
        "metrics: [overal, relabeled_per_client+tail]\n"
        "show: [gains]\n"
        "settings:\n"
        "  - {dataset: digits_lt, config: {data.alfa: 1}, where: {knd: cell}}\n"
        "  - {group: a, algorithms: {fedavg: {cpu: {training.rate: 1}}}, refrence: {}}\n"
        "  - text\n"
        "rows:\n"
        "  - {name: a, runs: {kind: trunk}}\n"
        "runs:\n"
        "  algorithms: [fedavg]\n"
        "  relabel: [{training.lr: 1}, {relabel.tua: 0.1}]\n"
        "  seeds: 0\n",
    )
    text = "\n".join(found)
    for part in (
        "line 2: metrics",
        "line 3: show",
        "line 4: unknown field settings[1].config: data.alfa; did you mean data.alpha?",
        "unknown filter settings[1].where: knd; did you mean kind?",
        "unknown field settings[2].algorithms.fedavg.cpu: training.rate",
        "unknown field settings[2].refrence; did you mean reference?",
        "settings[3] must be a mapping with `dataset`",
        "unknown field runs.relabel[1]: training.lr",
        "unknown field runs.relabel[2]: relabel.tua; did you mean relabel.tau?",
        "runs.seeds",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{SETTINGS}{ROWS}", "needs metrics"),
        (f"metrics: [tail]\ndataset: digits_lt\n{SETTINGS}{ROWS}", "dataset is said by every setting"),
        (f"metrics: [tail]\nper_algorithm: true\n{SETTINGS}{ROWS}", "write a row for each algorithm"),
        (f"metrics: [tail]\n{SETTINGS}rows: [{{runs: {{kind: trunk}}}}]\n", "rows[1] needs a name"),
        (f"metrics: [tail]\n{SETTINGS}{ROWS[:-2]}, choose: each}}\n", "gives rows that differ by setting"),
        (f"metrics: [tail]\n{SETTINGS}  - {{dataset: digits_step}}\n{ROWS}", "would stand in one place"),
        (f"runs: {{algorithms: [fedavg]}}\n{ROWS}", "runs need settings"),
        (f"show: [gain]\n{ROWS}", "show arranges settings"),
        (f"metrics: [medium+tail]\n{ROWS}", "medium+tail can be shown with `settings` only"),
        (f"{ROWS[:-2]}, round_rule: last}}\n", "rows[1].round_rule works with `settings` only"),
        (f"metrics: [tail]\nruns: []\n{SETTINGS}{ROWS}", "runs must be a mapping"),
        (f"metrics: [tail]\nsettings: {{}}\n{ROWS}", "settings must be a list"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(text: str, words: str, tmp_path: Path) -> None:
    assert any(words in fault for fault in faults(tmp_path, f"title: x\n{text}"))


def test_algorithms_may_be_listed_and_seeds_counted() -> None:
    runs = RunsSpec.model_validate({"algorithms": ["fedavg", "moon"], "seeds": 2, "config": {"training.lr": 1}})
    assert (list(runs.algorithms), runs.seeds) == (["fedavg", "moon"], (1, 2))
    named = RunsSpec.model_validate({"algorithms": {"moon": None, "climb": {"paper": {"training.lr": 3}}}})
    setting = SettingSpec.model_validate(
        {"config": {"data.alpha": 1}, "algorithms": {"moon": {"cpu": {"data.alpha": 2}}}}
    )
    assert named.fields(setting, "moon", "cpu") == {"data.alpha": 2}
    assert named.fields(setting, "climb", "paper") == {"data.alpha": 1, "training.lr": 3}


def test_a_row_without_a_note_stands_beside_every_note(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        "variant,metric,note,accuracy_pct\nbase,tail,,1\nours,tail,tau=1%,2\nours,tail,tau=3%,3\nbase,head,,5\n"
    )
    published = load_published(file)
    assert published.value({"metric": "tail", "variant": "base", "note": "tau=3%"}) == 1
    assert published.value({"metric": "tail", "variant": "ours", "note": "tau=3%"}) == 3
    assert published.value({"metric": "head+tail", "variant": "base"}) == 6
    assert published.value({"metric": "head+tail", "variant": "ours", "note": "tau=1%"}) is None
    assert published.value({"metric": "tail.other", "variant": "base"}) == 1
