"""Where images come from, how they are thinned and how they are dealt to clients.

Importing this package costs nothing: numpy, image and dataset libraries are loaded by the functions that need them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrela_bench.data.names import dataset_name, parse_dataset_name

if TYPE_CHECKING:
    from fedrela_bench.config import TrialConfig
    from fedrela_bench.data.federated import FederatedDataset

__all__ = ["FederatedDataset", "dataset_name", "fetch", "load_dataset", "parse_dataset_name"]


def load_dataset(
    config: TrialConfig, data_dir: Path | str | None = None, cache_dir: Path | str | None = None
) -> FederatedDataset:
    """Images, labels and clients of a configuration, ready for a simulation.

    Args:
        config: `data`, `federation.clients` and (as default of `data.partition_seed`) `seed` are read.
        data_dir: first place to look for named sets; then the environment variable FEDRELA_DATA, the cache and, for
            Fashion-MNIST, the system's package. Sets found nowhere are downloaded into the cache.
        cache_dir: decoded images and downloads; by default FEDRELA_CACHE or the user's cache directory.

    Raises:
        ConfigError: the configuration asks for something impossible; all faults in one message.
        DataError: images are missing, damaged, or cannot be split as asked.
    """
    from fedrela_bench.data.load import load

    return load(config, _path(data_dir), _path(cache_dir))


def fetch(name: str, data_dir: Path | str | None = None, cache_dir: Path | str | None = None) -> Path | None:
    """Make a dataset available offline: find or download it, then fill the cache of decoded images.

    Args:
        name: such as ``"cifar100"`` or ``"cifar100_lt"``; the profile does not matter.
        data_dir: as in `load_dataset`.
        cache_dir: as in `load_dataset`.

    Returns:
        The folder of the source files; None for `digits`, which comes with scikit-learn.

    Raises:
        ConfigError: unknown name.
        DataError: the download failed, or the files are damaged.
    """
    from fedrela_bench.data.sources import locate, read_source

    source, _ = parse_dataset_name(name)
    where = locate(source, _path(data_dir), _path(cache_dir))
    read_source(source, data_dir=_path(data_dir), cache_dir=_path(cache_dir))
    return where


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)


def __getattr__(name: str) -> object:
    if name == "FederatedDataset":
        from fedrela_bench.data.federated import FederatedDataset

        return FederatedDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
