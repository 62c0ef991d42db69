"""Conditional parameters, samplers by name, storages, and files that were written for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.errors import ConfigError
from fedrela_bench.rng import generator
from fedrela_bench.study.ledger import Ledger, open_study
from fedrela_bench.study.nodes import Nodes
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.samplers import check_sampler, check_storage
from fedrela_bench.study.space import Space, parse_space
from tests.study.fakes import config, request
from tests.study.test_ledger import ledger_for, plan_for, work

CONDITIONAL = {
    "algorithm": ["fedavg", "fedprox"],
    "parameters": {
        "federation.options.mu": {"choice": [0.01, 0.1], "when": {"algorithm": "fedprox"}},
        "relabel.refresh_from": {"choice": ["original", "current"], "when": {"relabel.period": [1, 2]}},
        "relabel.period": {"int": [0, 2]},
        "relabel.tau": {"choice": [0.1]},
        "relabel.start": {"choice": [0.5]},
    },
    "trials": 50,
}


def space(**changes: Any) -> Space:
    return parse_space({**CONDITIONAL, **changes})


def faults(values: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_space(values)
    return caught.value.faults


def test_a_parameter_is_there_only_where_its_condition_holds() -> None:
    rng = generator(1, "test")
    for _ in range(60):
        point = space().sample(rng)
        assert ("federation.options.mu" in point) == (point["algorithm"] == "fedprox")
        assert ("relabel.refresh_from" in point) == (point["relabel.period"] > 0)
        assert space().complete(point)


def test_the_size_counts_only_points_that_differ() -> None:
    # Periods 0, 1, 2 give 1 + 2 + 2; fedprox has two values of mu besides.
    assert space().size() == 5 + 2 * 5
    drawn = {str(sorted(point.items())) for point in space().points(generator(1, "test"))}
    assert len(drawn) == 15


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "grid"])
def test_every_point_of_a_conditional_space_is_found_once(tmp_path: Path, sampler: str) -> None:
    plan = plan_for(request(tmp_path, CONDITIONAL, sampler=sampler))
    ledger = ledger_for(plan)
    done = work(ledger)
    assert ledger.exhausted and len(done) == 15
    again = ledger_for(plan)
    assert again.next_point() is None and len(again.finished) == 15


def test_gp_refuses_conditions_and_grid_continuous_ranges() -> None:
    with pytest.raises(ConfigError, match="sampler gp draws parameters with `when` at random"):
        check_sampler("gp", space())


def test_conditions_that_cannot_hold_are_all_named() -> None:
    parameters = {
        "relabel.tau": {"choice": [0.1], "when": {"relabel.perio": 1}},
        "relabel.period": {"int": [0, 2], "when": {"relabel.refresh_from": "original"}},
        "relabel.refresh_from": {"choice": ["original"], "when": {"relabel.period": 7}},
        "relabel.start": {"choice": [0.5], "when": "algorithm"},
    }
    text = "\n".join(faults({"algorithm": "fedavg", "parameters": parameters}))
    for part in (
        "relabel.tau: when: unknown parameter relabel.perio; did you mean relabel.period?",
        "relabel.refresh_from: when: relabel.period never is 7",
        "the conditions of",
        "relabel.start: when = 'algorithm': map other parameters to values",
    ):
        assert part in text


def test_an_option_that_an_algorithm_does_not_have_is_refused_in_preflight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrela_bench.algorithms.registry import check_algorithm
    from tests.study.fakes import FakeEngine

    def check(self: FakeEngine, asked: Any, dataset: Any) -> None:
        wrong = check_algorithm(asked.federation.algorithm, asked.federation.options)
        if wrong:
            raise ConfigError(wrong)

    monkeypatch.setattr(FakeEngine, "check", check)
    preflight(request(tmp_path / "a", CONDITIONAL))
    plain = {**CONDITIONAL, "parameters": {"federation.options.mu": {"choice": [0.01, 0.1]}}}
    with pytest.raises(ConfigError, match=r"options of fedavg\); search it with when: \{algorithm: NAME\}"):
        preflight(request(tmp_path / "a", plain))


def test_synonyms_of_the_budget_and_the_objective() -> None:
    parsed = parse_space({**CONDITIONAL, "trials": 7, "objective": "tail"})
    assert (parsed.trials, parsed.objectives) == (7, ("tail",))
    assert "budget and trials say the same" in faults({**CONDITIONAL, "budget": 3})[0]


def test_conditions_are_part_of_what_a_study_is() -> None:
    assert space().identity() != space(parameters={"relabel.period": {"int": [0, 2]}}).identity()
    plain = parse_space({"algorithm": "fedavg", "parameters": {"relabel.period": {"int": [0, 2]}}})
    assert plain.identity()["parameters"] == {"relabel.period": ["int", [0, 2], 1]}


@pytest.mark.parametrize(
    ("tool", "values", "ours"),
    [
        (
            "Ludwig",
            {
                "hyperopt": {
                    "parameters": {"trainer.learning_rate": {"space": "loguniform", "lower": 0.001, "upper": 0.1}}
                }
            },
            "write training.lr: {loguniform: [0.001, 0.1]}",
        ),
        (
            "Weights & Biases",
            {
                "method": "bayes",
                "metric": {"name": "acc", "goal": "maximize"},
                "parameters": {"batch_size": {"values": [16, 32]}, "lr": {"min": 0.001, "max": 0.1}},
            },
            "write training.batch_size: {choice: [16, 32]}",
        ),
        (
            "Optuna",
            {"lr": {"name": "FloatDistribution", "attributes": {"low": 0.001, "high": 0.1, "log": True, "step": None}}},
            "write training.lr: {loguniform: [0.001, 0.1]}",
        ),
        (
            "OpenVINO",
            {
                "metric": "accuracy",
                "search_algorithm": "asha",
                "hp_space": {
                    "learning_parameters.learning_rate": {"param_type": "quniform", "range": [0.001, 0.1, 0.001]}
                },
            },
            "write training.lr: {uniform: [0.001, 0.1], step: 0.001}",
        ),
    ],
)
def test_files_of_other_tools_are_answered_with_our_form(tool: str, values: Any, ours: str) -> None:
    found = faults(values)
    assert f"this is a search space for {tool}; here `parameters` maps" in found[0]
    assert any(ours in fault for fault in found[1:])


def test_our_own_files_are_not_taken_for_others() -> None:
    assert space().parameters and parse_space({"algorithm": "fedavg", "parameters": {"relabel.tau": {"choice": [1]}}})


@pytest.mark.parametrize("url", ["journal.log", "mysql://h/x", "sqlite://", "postgresql://"])
def test_storages_that_are_no_database_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="write sqlite:///FILE or postgresql://USER@HOST/NAME"):
        check_storage(url)


def test_trials_can_be_kept_in_a_database(tmp_path: Path) -> None:
    import optuna

    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    plan = plan_for(request(tmp_path / "study", {"algorithm": "fedavg"}, trials=3))
    first = Ledger(open_study(url, 2, "tpe", 1, "mine"), plan)
    first.start()
    done = work(first)
    again = Ledger(open_study(url, 2, "tpe", 1, "mine"), plan)
    again.start()
    assert again.next_point() is None and len(again.finished) == len(done) == 3
    assert optuna.get_all_study_names(url) == ["mine"]


def test_a_database_that_does_not_answer_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = ""
    with pytest.raises(ConfigError) as caught:
        preflight(request(tmp_path / "study", optuna_storage="postgresql://u@127.0.0.1:9/x"))
    text = str(caught.value)
    assert "--optuna-storage postgresql://u@127.0.0.1:9/x" in text and not (tmp_path / "study").exists()
    with pytest.raises(ConfigError, match="there is no folder"):
        check_storage(f"sqlite:///{tmp_path / 'absent' / 'o.db'}")


def test_a_node_that_never_starts_a_run_is_given_nothing_more() -> None:
    told: list[str] = []
    nodes = Nodes(told.append)
    bad = {"status": "failed", "node": "n1", "host": "one", "rounds": 0, "error": "no driver"}
    assert not nodes.note(bad), "a single node has no other to go to"
    nodes.several = True
    assert nodes.note({**bad, "kind": "ConfigError"}) is False, "the user's fault is the same on every node"
    assert nodes.note({**bad, "rounds": 3}) is False
    assert nodes.note(bad) and not nodes.quarantined
    assert nodes.note(bad) and nodes.quarantined == {"n1"}
    assert "node one failed 2 times before a first round (no driver)" in told[0]
    assert nodes.note({"status": "finished", "node": "n2", "rounds": 5}) is False
    assert nodes.note({**bad, "node": "n2"}) and nodes.note({**bad, "node": "n2"})
    assert nodes.quarantined == {"n1"}, "n2 has computed before"


def test_a_base_configuration_is_where_its_own_options_begin(tmp_path: Path) -> None:
    parsed = parse_space({"algorithm": "fedavg", "parameters": {"training.lr": {"loguniform": [0.001, 1.0]}}})
    assert parsed.defaults({"fedavg": config(training__lr=0.07)}) == [{"training.lr": 0.07}]
    assert parsed.defaults({"fedavg": config(training__lr=5.0)}) == [{}]


def test_a_condition_on_a_continuous_range_or_an_unknown_algorithm_never_holds() -> None:
    continuous = {
        "relabel.tau": {"uniform": [0.01, 0.2]},
        "relabel.period": {"int": [0, 2], "when": {"relabel.tau": 0.1}},
    }
    (fault,) = faults({"algorithm": "fedavg", "parameters": continuous})
    assert "relabel.period: when: relabel.tau is continuous" in fault
    typo = {**CONDITIONAL["parameters"], "federation.options.mu": {"choice": [0.1], "when": {"algorithm": "fedprx"}}}
    with pytest.raises(ConfigError, match=r"federation\.options\.mu: when: .*fedprx.*did you mean fedprox"):
        space(parameters=typo).check_algorithms(["fedavg", "fedprox"])
    space().check_algorithms(["fedavg", "fedprox"])
