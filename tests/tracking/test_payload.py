"""What a run shows in MLflow stays few enough to read, whatever its data and algorithm measure."""

from __future__ import annotations

from typing import Any

import pytest

from fedrela_bench.tracking import payload
from fedrela_bench.tracking.manifest import Record
from fedrela_bench.tracking.payload import final_metrics, params_of, round_metrics

MOST_KEYS = 15
GROUPS = {
    "long-tailed": ("overall", "head", "medium", "tail"),
    "step": ("overall", "majority", "minority"),
    "two classes": ("overall", "head", "medium"),
    "one group": ("overall", "head"),
}
OTHERS = ("train/loss", "train/lr", "relabel/changed", "relabel/rate", "time/round_seconds", "test/tail.realign")


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_a_run_has_at_most_fifteen_metric_keys(groups: tuple[str, ...]) -> None:
    metrics = {f"{split}/{group}": 0.5 for split in ("test", "val") for group in groups} | dict.fromkeys(OTHERS, 1.0)
    line = {"round": 3, "timestamp": 2.0, "result": {"metrics": metrics}}
    keys = [name for name, *_ in (*round_metrics(line), *final_metrics({"owner": {"time": 2.0}, "final": metrics}))]
    assert len(keys) == len(set(keys)) <= MOST_KEYS
    rarest = groups[-1] if groups[-1] != "head" else "overall"
    assert {f"val/{rarest}", f"final/val/{rarest}", f"test/{rarest}", f"final/test/{rarest}"} <= set(keys)


def record(config: dict[str, Any], kind: Any = "cell") -> Record:
    return Record(kind=kind, key="k", folder="f", algorithm="fedavg", seed=1, config=config, name="n", created=1.0)


def test_what_came_later_and_changes_nothing_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of before and after are one configuration in a report."""
    monkeypatch.setattr(payload, "neutral_values", lambda model: iter([("training.warmup", 0)]))
    relabeler = {"relabel.method": "fedrela", "relabel.schedule": "fixed"}
    for kind, always in (("cell", relabeler), ("trunk", {})):
        old = params_of(record({"training": {"lr": 0.1}}, kind))
        assert (
            params_of(record({"training": {"lr": 0.1, "warmup": 0}}, kind)) == old == {"training.lr": "0.1", **always}
        )
        assert params_of(record({"training": {"lr": 0.1, "warmup": 2}}, kind))["training.warmup"] == "2"
