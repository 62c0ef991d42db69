"""Descriptions that MLflow shows beside a study and its runs, in Markdown."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.rounds import rule_text
from fedrela_bench.tracking.manifest import Record
from fedrela_bench.tracking.naming import settings_of

NOTE = "mlflow.note.content"
GAP = "&emsp;"
MOST_ROWS = 15
"""Of the Pareto table; the file has all."""
MOST_CHARACTERS = 7500
"""Of a note; MLflow takes 8,000."""
STANDS = {"finished": "finished", "partial": "partly computed; the command below continues it"}
Link = Callable[[str], str]
"""From a run's key to its link in the UI, or to an empty text."""


def experiment_note(dataset: str) -> str:
    """What an experiment holds."""
    return (
        f"Studies of `fedrela-bench` on {dataset}. Every study is one parent run whose description says how to read "
        "and repeat it; its baselines and relabelled runs are nested in it. The view "
        "`fedrela-bench` (under Views) has the columns to begin with."
    )


def study_note(
    study_dir: Path, study: Mapping[str, Any], link: Link, ended: str = "", models: Sequence[str] = ()
) -> str:
    """What a study is, the commands to go on with it, and what it found so far.

    Args:
        study_dir: with the tables and best configurations, as far as there are any.
        study: the contents of its ``study.json``.
        link: to the run of a key.
        ended: the terminal status that MLflow is told; empty while it goes on.
        models: lines about logged models.
    """
    parts = [
        _what(study, _stands(study, ended)),
        "\n".join(_pareto(study_dir, study, link)),
        _commands(study_dir, study),
        "\n".join(_best(study_dir)),
        "\n".join(models),
        _reading(study),
    ]
    return cut_note("\n\n".join(part for part in parts if part))


def cut_note(text: str) -> str:
    """At most `MOST_CHARACTERS`, in whole lines."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[:MOST_CHARACTERS].rpartition("\n")[0] + "\n\n(shortened)"


def _stands(study: Mapping[str, Any], ended: str) -> str:
    if not ended:
        return "under way"
    if ended != "FINISHED":
        return "failed" if ended == "FAILED" else "interrupted"
    return STANDS.get(str(study.get("status", "finished")), "interrupted")


def _what(study: Mapping[str, Any], status: str) -> str:
    identity = study.get("identity", {})
    space = identity.get("space", {})
    objectives = ", ".join(f"`{name}`" for name in identity.get("objectives", ()))
    lines = [
        f"**FedReLa study on {study.get('dataset', '?')}**: {status}.",
        "",
        f"- base algorithms: {', '.join(space.get('algorithms', ()))}",
        f"- searched: {'; '.join(_searched(space.get('parameters', {})))}",
        f"- objectives: {objectives}; every number is the mean over seeds "
        f"{', '.join(map(str, identity.get('seeds', ())))} (n = {len(identity.get('seeds', ()))}) of the "
        f"{rule_text(study.get('round_rule'))}",
        f"- selection: {_selection(study)}",
        f"- {'; '.join(f'{name}: {study[name]}' for name in ('device', 'sampler', 'trials') if name in study)}",
    ]
    return "\n".join(lines)


def _selection(study: Mapping[str, Any]) -> str:
    if study.get("selection") == "oracle":
        return "**oracle**: the reported test set selects, as in the paper"
    return "a fixed half of the test set selects (`val/...`), the other half is reported (`test/...`)"


def _searched(parameters: Mapping[str, Any]) -> list[str]:
    shown = []
    for name, (kind, values, *step) in parameters.items():
        size = step[0] if step else None
        steps = f" in steps of {size:g}" if isinstance(size, int | float) and kind != "choice" else ""
        text = ", ".join(map(str, values)) if kind == "choice" else f"{values[0]:g} to {values[1]:g}{steps}"
        shown.append(f"`{name}` {text}")
    return shown or ["nothing"]


def _commands(study_dir: Path, study: Mapping[str, Any]) -> str:
    out = str(study_dir)
    commands = {
        "continue it, or with a larger `--trials` extend it": study.get("command", ""),
        "tables and figures": shlex.join(["fedrela-bench", "report", out]),
        "this page": shlex.join(["fedrela-bench", "ui", out]),
        "complete MLflow after an outage": shlex.join(["fedrela-bench", "sync", out]),
    }
    return "\n".join(["### Commands", "", *(f"- {what}: `{text}`" for what, text in commands.items() if text)])


def _pareto(study_dir: Path, study: Mapping[str, Any], link: Link) -> list[str]:
    baselines = [row for row in _rows(study_dir / "trials.csv") if row["trial"] == "baseline"]
    front = _rows(study_dir / "pareto.csv")
    if not front:
        return []
    searched = [name for name in study.get("identity", {}).get("space", {}).get("parameters", {}) if name in front[0]]
    objectives = [str(name) for name in study.get("identity", {}).get("objectives", ())]
    reported = [name for name in ("test/overall", "test/tail", "test/minority") if name not in objectives]
    numbers = [*objectives, *(f"gain {name}" for name in objectives), *reported]
    numbers = [name for name in numbers if name in front[0]]
    header = ["trial", "algorithm", *(name.rsplit(".", 1)[-1] for name in searched)]
    # The UI draws tables without space between columns.
    header = [*(name + GAP for name in header), *(GAP + name for name in numbers)]
    lines = [_line(header), _line(["---"] * (2 + len(searched)) + ["---:"] * len(numbers))]
    for row in (*baselines, *front[:MOST_ROWS]):
        shown = [_trial(row, link) + GAP, row["algorithm"], *(row.get(name, "") for name in searched)]
        lines.append(_line([*shown, *(_percent(row.get(name, ""), name.startswith("gain ")) for name in numbers)]))
    more = [f"{len(front) - MOST_ROWS} more in `pareto.csv`."] if len(front) > MOST_ROWS else []
    return ["### Pareto front beside the baselines, %", "", *lines, "", *more]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def _trial(row: Mapping[str, str], link: Link) -> str:
    target = link(row.get("keys", "").partition(" ")[0])
    return f"[{row['trial']}]({target})" if target else row["trial"]


def _percent(text: str, signed: bool) -> str:
    try:
        return f"{100 * float(text):{'+' if signed else ''}.2f}"
    except ValueError:
        return "-"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _best(study_dir: Path) -> list[str]:
    lines = []
    for path in sorted((study_dir / "best").glob("*.yaml")):
        command = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- {path.stem}: `{command}`")
    return ["### Best configurations (artifacts `best/`)", "", *lines] if lines else []


def _reading(study: Mapping[str, Any]) -> str:
    return (
        "### How to read it\n\n"
        "- nested runs: a `baseline` is a base algorithm without relabelling on one seed (a trunk); every other run is "
        "a cell, which forks from its trunk at round T. The rounds before T are the trunk's, copied so that curves "
        "overlay.\n"
        "- columns: `final/...` is the number by the round rule; `test/...`, `val/...` and `train/loss` are curves "
        "over rounds. `time/round_seconds` is the time of a round, `relabel/changed` the samples whose label was set.\n"
        "- filters: `tags.kind = 'cell'`, `tags.algorithm = 'fedavg'`, `tags.seed = '1'`, `tags.tau = '0.05'`, "
        "`tags.best LIKE '%'`.\n"
        "- artifacts of a run: `confusion_test.png` and `.csv`, `per_class.csv`, `relabel_flow.csv`, `config.yaml`."
    )


def run_note(
    record: Record, study: Mapping[str, Any], trunk: str, final: Mapping[str, float], base: Mapping[str, float]
) -> str:
    """What a run is, and once it is finished what it reached.

    Args:
        record: of the run.
        study: the contents of its ``study.json``.
        trunk: link to the run it forks from, as Markdown.
        final: its numbers by the round rule; {} before.
        base: those of its trunk; {} where they are not known yet.
    """
    text = _trunk_text(record) if record.kind == "trunk" else _cell_text(record, study, trunk)
    names = [name for name in final if name.startswith("test/")]
    reached = [
        f"`{name}` {100 * final[name]:.2f} %" + (f" ({100 * (final[name] - base[name]):+.2f})" if name in base else "")
        for name in names
    ]
    if reached:
        beside = ", in brackets the difference to its trunk" if base else ""
        text += f"\n\nReached ({rule_text(study.get('round_rule'))}{beside}): "
        text += ", ".join(reached) + "."
    return text


def _trunk_text(record: Record) -> str:
    if record.trial is not None:
        return f"Trial {record.trial}: {record.algorithm} without relabelling, seed {record.seed}."
    return (
        f"Trunk: {record.algorithm} without relabelling, seed {record.seed}. It is the baseline of this seed, and the "
        "run that every relabelled run of this algorithm and seed forks from."
    )


def _cell_text(record: Record, study: Mapping[str, Any], trunk: str) -> str:
    trial = f"trial {record.trial}" if record.trial is not None else "an arm of the confirm stage"
    own = max(record.fork_round, record.branch_round) + 1
    who = record.tags.get("relabeler") or "FedReLa"
    shared = f"Rounds 1 to {record.fork_round} are those of {trunk}"
    if record.branch_round > record.fork_round:
        shared += f", rounds {record.fork_round + 1} to {record.branch_round} those of the run that relabels once"
    return (
        f"Cell: {record.algorithm} relabelled by {who} ({', '.join(settings_of(record, study))}), seed "
        f"{record.seed}, {trial}. {shared}; its own rounds begin at {own}."
    )
