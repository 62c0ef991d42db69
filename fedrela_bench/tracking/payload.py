"""What a run shows in MLflow: parameters, at most fifteen metric keys, tags and artifacts."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.config import PUBLISHED, RelabelConfig, TrialConfig
from fedrela_bench.neutral import neutral_values
from fedrela_bench.tracking.manifest import Record
from fedrela_bench.tracking.naming import run_name

MAX_PARAM = 6000
LONG_PARAMS = "long_params.json"
ROUND_METRICS = (
    "train/loss",
    "test/overall",
    "test/head",
    "test/medium",
    "test/tail",
    "test/majority",
    "test/minority",
    "val/overall",
    "val/tail",
    "val/minority",
    "relabel/changed",
    "time/round_seconds",
)
RAREST = {"val/tail", "val/minority"}
STAND_IN = "val/medium"
"""Shown where the data have none of the rarest groups, since then it may be what a study selects by."""
COSTS = ("down", "up", "total_down", "total_up")
_ALWAYS = ("relabel.tau", "relabel.start", "relabel.period", "relabel.preset")


def params_of(record: Record) -> dict[str, str]:
    """The flattened configuration; relabel options at their defaults are left out, a trunk has none at all.

    So are fields that came later than the first studies, where they change nothing: runs of before and after are alike.
    """
    defaults = dict(flatten(RelabelConfig().model_dump(mode="json"), "relabel."))
    defaults |= dict(neutral_values(TrialConfig))
    shown = {}
    for name, value in flatten(record.config):
        if name not in _ALWAYS and name in defaults and value == defaults[name]:
            continue
        if name.startswith("relabel.") and record.kind == "trunk":
            continue
        shown[name] = str(value)
    if record.kind != "trunk":
        return {**PUBLISHED, **shown}
    return shown


def cut(params: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters as MLflow takes them, and those it takes only in part, whole."""
    whole = {name: value for name, value in params.items() if len(value) > MAX_PARAM}
    note = f"... ({LONG_PARAMS} has all)"
    short = {name: value[: MAX_PARAM - len(note)] + note for name, value in whole.items()}
    return {**params, **short}, whole


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested settings; lists stay whole, nothing is said about None."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def round_metrics(line: Mapping[str, Any]) -> list[tuple[str, float, int, int]]:
    """(name, value, milliseconds, step) of one journal line, with the time at which it was written."""
    metrics, stamp = line["result"]["metrics"], int(line["timestamp"] * 1000)
    return [(name, float(metrics[name]), stamp, line["round"]) for name in _shown(metrics)]


def final_metrics(result: Mapping[str, Any]) -> list[tuple[str, float, int, int]]:
    """The numbers by the round rule as ``final/...``; at step 0, which the UI draws as one bar for each run."""
    stamp, final = int(result["owner"]["time"] * 1000), result["final"]
    names = [name for name in _shown(final) if name.startswith(("test/", "val/"))]
    return [(f"final/{name}", float(final[name]), stamp, 0) for name in names]


def _shown(metrics: Mapping[str, float]) -> list[str]:
    wanted = ROUND_METRICS if RAREST & metrics.keys() else (*ROUND_METRICS, STAND_IN)
    return [name for name in wanted if name in metrics]


def tags_of(record: Record, study: Mapping[str, Any]) -> dict[str, str]:
    """Identity and provenance of a run."""
    own = {"kind": record.kind, "key": record.key, "trunk_key": record.trunk_key or record.key}
    own |= {"algorithm": record.algorithm, "seed": str(record.seed)}
    own |= {"trial": str(record.trial)} if record.trial is not None else {}
    if record.kind == "cell":
        relabel = record.config.get("relabel", {})
        own |= {name: str(relabel[name]) for name in ("tau", "start", "period") if name in relabel}
        own |= {"fork_round": str(record.fork_round)}
    shared = {
        name: str(study[name]) for name in ("study", "dataset", "selection", "round_rule", "device") if name in study
    }
    versions = {f"version.{name}": str(value) for name, value in study.get("versions", {}).items()}
    return {**shared, **versions, **own, **record.tags, "mlflow.runName": run_name(record, study)}


def cost_tags(result: Mapping[str, Any]) -> dict[str, str]:
    """What a finished run sent, in floats, and what its messages guarantee; nothing where its record does not say."""
    sent, privacy = result.get("communication"), result.get("privacy")
    tags = {f"cost.{name}": str(sent[name]) for name in COSTS if name in sent} if isinstance(sent, Mapping) else {}
    return tags | ({"privacy.guarantee": guarantee(privacy)} if isinstance(privacy, Mapping) else {})


def guarantee(privacy: Mapping[str, Any]) -> str:
    """One sentence about a run's differential privacy, from its record."""
    setting = f"{privacy['level']} level, clip {privacy['clip']:g}, noise multiplier {privacy['noise_multiplier']:g}"
    setting += f", {privacy['sampling']} sampling" if privacy["level"] == "sample" else ""
    if not privacy["noise_multiplier"]:
        return f"{setting}: no guarantee without noise"
    at = f"at delta {privacy['delta']:g}, the largest of {privacy['clients']} clients over {privacy['rounds']} rounds"
    if privacy["epsilon"] is not None:
        return f"{setting}: epsilon {privacy['epsilon']:.4g} {at}"
    before, given = privacy["epsilon_before_relabelling"], privacy["epsilon_labels_given"]
    return (
        f"{setting}: no guarantee of the whole run, since a relabelled sample's label depends on others; epsilon "
        f"{before:.4g} up to T, {given:.4g} if the new labels were public, {at}"
    )


def write_artifacts(record: Record, folder: Path, target: Path, names: Sequence[str] = ()) -> None:
    """Collect a finished run's files: resolved config, journal, arrays, and tables and pictures made of them.

    Args:
        record: of the run.
        folder: where its files are.
        target: folder to fill.
        names: of the classes; their numbers where there are none.
    """
    from fedrela_bench.yaml_io import dump_yaml

    (target / "config.yaml").write_text(dump_yaml(dict(record.config)), encoding="utf-8")
    for path in (*sorted(folder.glob("*.npz")), folder / "rounds.jsonl"):
        if path.exists():
            shutil.copy(path, target / path.name)
    _write_flow(folder, target / "relabel_flow.csv")
    _write_classes(folder / "curves.npz", target / "per_class.csv")
    _write_confusions(folder / "curves.npz", target, names)


def _write_flow(folder: Path, target: Path) -> None:
    import numpy as np

    rows = []
    for path in sorted(folder.glob("relabel_r*.npz")):
        with np.load(path) as arrays:
            flow = arrays["flow"]
        moved = [(int(a), int(b)) for a, b in zip(*np.nonzero(flow), strict=True) if a != b]
        rows += [(int(path.stem[9:]), source, to, int(flow[source, to])) for source, to in moved]
    if rows:
        _write_csv(target, ("round", "from", "to", "count"), rows)


def _write_classes(path: Path, target: Path) -> None:
    import numpy as np

    if not path.exists():
        return
    with np.load(path) as arrays:
        tables = {name: arrays[name] for name in arrays.files if name.startswith("per_class_")}
        last = {name: table[-1] for name, table in tables.items() if table.ndim == 2 and len(table)}
    names = sorted(last)
    if names:
        rows = [(index, *values) for index, values in enumerate(zip(*(last[name] for name in names), strict=True))]
        _write_csv(target, ("class", *(name.removeprefix("per_class_") for name in names)), rows)


def _write_confusions(path: Path, target: Path, names: Sequence[str]) -> None:
    """``confusion_<slice>.csv`` and ``.png`` of the last round."""
    import numpy as np

    from fedrela_bench.tracking.picture import draw_confusion

    if not path.exists():
        return
    with np.load(path) as arrays:
        matrices = {name: arrays[name] for name in arrays.files if name.startswith("confusion_")}
    for name, matrix in matrices.items():
        classes = list(names) if len(names) == len(matrix) else [str(label) for label in range(len(matrix))]
        rows = [(label, *map(int, row)) for label, row in zip(classes, matrix, strict=True)]
        _write_csv(target / f"{name}.csv", ("true class", *classes), rows)
        title = f"{name.removeprefix('confusion_')} images after the last round"
        draw_confusion(matrix, classes, title, target / f"{name}.png")


def _write_csv(path: Path, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def read_result(folder: Path) -> dict[str, Any] | None:
    """A finished run's ``result.json``, or None."""
    try:
        values = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) and "final" in values else None
