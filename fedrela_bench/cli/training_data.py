"""The images behind recorded runs, for reports that show them; nothing is downloaded for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedrela_bench.errors import DataError

if TYPE_CHECKING:
    from fedrela_bench.reporting.evidence import DataReader, TrainingData
    from fedrela_bench.reporting.report import Report
    from fedrela_bench.reporting.view import View


def training_data_reader(data_dir: Path | None = None) -> DataReader:
    """A reader of the training data that a recorded configuration names.

    Args:
        data_dir: first place to look for named sets.
    """

    def read(values: Mapping[str, Any]) -> TrainingData:
        return _read(values, data_dir)

    return read


def report_of(
    ctx: typer.Context, studies: Sequence[Path], spec: str, view: View, formats: Sequence[str], out: Path | None
) -> Report:
    """Render a report as the command line's ``--data-dir`` and ``--tracking-uri`` say."""
    from fedrela_bench.reporting.report import render_report

    read = training_data_reader(ctx.params["data_dir"])
    return render_report(studies, spec, out, formats, ctx.params["tracking_uri"], view, read, default_options)


def default_options(algorithm: str) -> Mapping[str, Any]:
    """What the options of an algorithm are where a run records none."""
    from fedrela_bench.algorithms import default_options as known

    return known(algorithm)


def _read(values: Mapping[str, Any], data_dir: Path | None) -> TrainingData:
    from fedrela_bench.config import parse
    from fedrela_bench.data import load_dataset
    from fedrela_bench.reporting.evidence import TrainingData
    from fedrela_bench.simulation.setup import group_names

    config = parse(values)
    _require_here(config.data.source, data_dir)
    dataset = load_dataset(config, data_dir)
    return TrainingData(
        digest=dataset.digest,
        names=dataset.class_names,
        groups=group_names(config, dataset),
        labels=dataset.labels,
        client_counts=dataset.client_counts,
        images=lambda positions: dataset.train_images[dataset.subset[positions]],
        pictures=not dataset.is_table,
    )


def _require_here(source: str, data_dir: Path | None) -> None:
    from fedrela_bench.data.sources import default_cache_dir
    from fedrela_bench.data.sources.places import LAYOUTS, places, search

    if source in LAYOUTS and search(source, places(source, data_dir, default_cache_dir()))[0] is None:
        raise DataError(f"the images of {source} are not on this machine; give --data-dir, or set FEDRELA_DATA")
