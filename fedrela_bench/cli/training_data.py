"""The images behind recorded runs, for reports that show them; nothing is downloaded for a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.errors import DataError

if TYPE_CHECKING:
    from fedrela_bench.reporting.evidence import DataReader, TrainingData


def training_data_reader(data_dir: Path | None = None) -> DataReader:
    """A reader of the training data that a recorded configuration names.

    Args:
        data_dir: first place to look for named sets.
    """

    def read(values: Mapping[str, Any]) -> TrainingData:
        return _read(values, data_dir)

    return read


def _read(values: Mapping[str, Any], data_dir: Path | None) -> TrainingData:
    from fedrela_bench.config import parse
    from fedrela_bench.data import load_dataset
    from fedrela_bench.reporting.evidence import TrainingData
    from fedrela_bench.simulation.setup import class_groups

    config = parse(values)
    _require_here(config.data.source, data_dir)
    dataset = load_dataset(config, data_dir)
    group = {label: name for name, labels in class_groups(config, dataset).items() for label in labels}
    return TrainingData(
        digest=dataset.digest,
        names=dataset.class_names,
        groups=tuple(group[label] for label in range(dataset.num_classes)),
        labels=dataset.labels,
        client_counts=dataset.client_counts,
        images=lambda positions: dataset.train_images[dataset.subset[positions]],
    )


def _require_here(source: str, data_dir: Path | None) -> None:
    from fedrela_bench.data.sources import default_cache_dir
    from fedrela_bench.data.sources.places import LAYOUTS, places, search

    if source in LAYOUTS and search(source, places(source, data_dir, default_cache_dir()))[0] is None:
        raise DataError(f"the images of {source} are not on this machine; give --data-dir, or set FEDRELA_DATA")
