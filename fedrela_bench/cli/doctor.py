"""`fedrela-bench doctor`: what this machine has."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import typer

from fedrela_bench import __version__
from fedrela_bench.cli.command import BenchCommand
from fedrela_bench.cli.common import DataDir, tell

PACKAGES = ("torch", "torchvision", "numpy", "ray", "optuna", "mlflow", "pandas", "matplotlib")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", cls=BenchCommand)(doctor)


def doctor(data_dir: DataDir = None) -> int:
    """Versions, processors, GPUs and the datasets that are found here, without downloading any."""
    tell(
        f"fedrela-bench {__version__}",
        f"python {platform.python_version()}",
        *(f"{name} {_version(name)}" for name in PACKAGES),
    )
    tell(f"cpu: {os.cpu_count()} cores", *_devices(), "", "datasets")
    from fedrela_bench.data.names import NAMED_SOURCES
    from fedrela_bench.data.sources.places import default_cache_dir, places, search

    tell(f"  {'digits':<16} comes with scikit-learn")
    for source in NAMED_SOURCES:
        if source != "digits":
            found, _ = search(source, places(source, data_dir, default_cache_dir()))
            tell(f"  {source:<16} {found.folder if found else f'not here; fetch: fedrela-bench data get {source}'}")
    return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return ["gpu: none that torch can use"]
    names = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    return [f"gpu {place}: {gpu.name}, {gpu.total_memory / 2**30:.1f} GiB" for place, gpu in enumerate(names)]
