"""What one must know to read a table: its facts, its footnotes, and one sentence of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedrela_bench.intervals import CONFIDENCE, DRAWS, ENUMERATED, INTERVAL_FROM, WHY_THREE
from fedrela_bench.reporting.comparison import FEW_SEEDS, SLOWED, Comparison, scales
from fedrela_bench.reporting.controls import control_notes
from fedrela_bench.reporting.costs import cost_facts
from fedrela_bench.reporting.evenness import uneven_notes
from fedrela_bench.reporting.select import DAGGER, ROUND_RULES
from fedrela_bench.reporting.table import DASH, Cells, Column, Gain, Measure

SETTING = (
    "data.alpha",
    "data.imbalance_factor",
    "data.n_max",
    "federation.clients",
    "federation.participation",
    "federation.rounds",
    "training.model",
    "training.local_epochs",
    "training.batch_size",
    "training.lr",
)
"""Configuration fields that a reader needs to judge a comparison."""
CALLED = {"data.n_max": "images of the largest class"}
"""Fields that are not called by the last part of their name."""
VERSIONS = {"fedrela-bench": "version.fedrela_bench", "torch": "version.torch", "simulation": "simulation_version"}


def facts_of(given: Comparison) -> Iterator[tuple[str, str]]:
    """(name, value) of split, round rule, seeds, selection, statistic, dataset, setting, digests, versions, device."""
    selections = "+".join(sorted(set(given.used["selection"]))) or DASH
    yield "split", given.split
    yield "round rule", f"{given.spec.round_rule} ({ROUND_RULES[given.spec.round_rule]})"
    yield "seeds", _seeds(given)
    yield "selection", f"{selections}{f' {DAGGER}' if given.oracle else ''}"
    yield "statistic", statistic()
    yield "dataset", given.runs.dataset
    if given.runs.data_notes:
        yield "data", "; ".join(given.runs.data_notes)
    yield "setting", ", ".join(_setting(given)) or DASH
    yield from cost_facts(given.arms)
    yield "dataset digest", "; ".join(_digests(given)) or DASH
    yield "versions", ", ".join(f"{name} {_values(given, column)}" for name, column in VERSIONS.items())
    yield "device", ", ".join(sorted(set(given.used["device"]))) or DASH


def statistic() -> str:
    """How means, spreads and intervals are made."""
    return (
        "accuracy in percent, mean ± standard deviation (ddof 1) over seeds; Δ: paired with the unrelabelled run of "
        f"the same seed, mean [{CONFIDENCE:.0%} t interval]; intervals from {INTERVAL_FROM} pairs on ({WHY_THREE}); "
        f"bootstrap: {CONFIDENCE:.0%} percentile interval of the mean over pairs, exact up to {ENUMERATED} pairs, "
        f"{DRAWS:,} seeded resamples above; it is too narrow for few pairs (of three it is the range)"
    )


def summary_of(given: Comparison) -> str:
    """One sentence for where the facts have no room."""
    return (
        f"Accuracy in %, mean ± standard deviation over seeds {_seeds(given)}; split: {given.split}; "
        f"{ROUND_RULES[given.spec.round_rule]}; Δ: paired with the unrelabelled run of the same seed "
        f"[{CONFIDENCE:.0%} t interval from {INTERVAL_FROM} seeds on]."
        f"{''.join(f' Data: {note}.' for note in given.runs.data_notes)}"
    )


def notes_of(given: Comparison, columns: Sequence[Column], rows: Sequence[Cells]) -> Iterator[str]:
    """Footnotes: the marks first, then what is missing or left out, then the spec's own."""
    if given.oracle:
        yield f"{DAGGER} oracle: the reported test images also chose the configuration or the round."
    yield from _few_seeds(given)
    yield from _fewer_seeds(columns, rows)
    yield from uneven_notes(given.arms)
    yield from _slowed(given)
    yield from _not_paired(given)
    yield from control_notes(given)
    missing = [arm.label for arm in given.arms if not len(arm.runs)]
    if missing:
        yield f"No finished run fits: {'; '.join(missing)}."
    yield from _left_out(given)
    yield from given.spec.notes


def _not_paired(given: Comparison) -> Iterator[str]:
    refused = {arm.label: found for arm in given.arms if (found := given.not_paired(arm))}
    for label, found in refused.items():
        yield f"Not paired, since the baseline is another experiment: {label}, {', '.join(found)}."
    if refused:
        yield (
            "For the Δ of rows that are not paired compute the baseline of their own settings; where a study searches "
            "such settings, its `fedrela-bench tune` command, typed again, ends with the commands for that."
        )


def _seeds(given: Comparison) -> str:
    return ", ".join(str(seed) for seed in given.seeds) or DASH


def _setting(given: Comparison) -> Iterator[str]:
    for name in SETTING:
        if _meaningless(given, name):
            continue
        column = f"param:{name}"
        values = sorted(set(given.used[column].dropna().astype(str))) if column in given.used else []
        if values:
            called = CALLED.get(name, name.rpartition(".")[2].replace("_", " "))
            yield f"{called} {' or '.join(map(_shown, values))}"


def _shown(value: str) -> str:
    """A recorded value for readers: 100 instead of 100.0."""
    whole, point, rest = value.partition(".")
    return whole if point and rest and not rest.strip("0") and whole.lstrip("-").isdigit() else value


def _meaningless(given: Comparison, name: str) -> bool:
    """Whether no run reads a field: the skew where clients are not drawn, the imbalance where none is made."""
    chosen = {"data.alpha": "param:data.partition", "data.imbalance_factor": "profile"}.get(name)
    values = set(given.used[chosen].dropna().astype(str)) if chosen in given.used else set()
    return bool(values) and values <= {"natural", "iid", "balanced"}


def _digests(given: Comparison) -> Iterator[str]:
    for seed, group in given.used.groupby("seed"):
        yield f"seed {seed}: {' and '.join(sorted(set(group['data_digest'])))}"


def _values(given: Comparison, column: str) -> str:
    return " and ".join(sorted(set(given.used[column])))


def _few_seeds(given: Comparison) -> Iterator[str]:
    few = [arm for arm in given.arms if given.few(arm)]
    if few:
        counts = "; ".join(f"{arm.label}: {len(arm.runs)}" for arm in few)
        yield f"{FEW_SEEDS} fewer than {given.wanted_seeds} seeds ({counts})."


def _fewer_seeds(columns: Sequence[Column], rows: Sequence[Cells]) -> Iterator[str]:
    found = [
        f"{row[0]}, {column.title}: n = {cell.n}"
        for row in rows
        for column, cell in zip(columns, row, strict=True)
        if isinstance(cell, Measure | Gain) and FEW_SEEDS in cell.marks
    ]
    if found:
        yield f"{FEW_SEEDS} behind a number: it rests on fewer seeds than its row has ({'; '.join(found)})."


def _slowed(given: Comparison) -> Iterator[str]:
    factors = sorted({factor for arm in given.arms for factor in scales(arm)})
    if factors:
        shown = " or ".join(f"{factor:g}" for factor in factors)
        yield (
            f"{SLOWED} the learning rate is multiplied by {shown} from T on: the gain includes that drop. Compare "
            "with the control arm, relabel.tau = 0 with the same relabel.post_relabel_lr_scale."
        )


def _left_out(given: Comparison) -> Iterator[str]:
    frame = given.runs.frame
    for status in sorted(set(frame["status"]) - {"completed", "stopped", ""}):
        yield f"Left out: {int((frame['status'] == status).sum())} runs that {status}."
    unfinished = frame[frame["run_status"] != "FINISHED"]["status"]
    futile, going_on = int((unfinished == "stopped").sum()), int(unfinished.isin(["", "completed"]).sum())
    if futile:
        yield f"Left out: {futile} runs that were stopped for gaining too little."
    if going_on:
        yield f"Left out: {going_on} runs that are not finished."
