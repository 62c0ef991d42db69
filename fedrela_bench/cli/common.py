"""What several verbs share: option types, the size profile, the configuration of a command line."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from fedrela_bench.cli.command import faults_of_line, overrides_of
from fedrela_bench.defaults import SIZES, Resolved, Size, resolve
from fedrela_bench.errors import ConfigError

if TYPE_CHECKING:
    from fedrela_bench.data.federated import FederatedDataset

T = TypeVar("T")
SMALL: tuple[Size, str] = ("cpu", "profile: cpu")
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME", help="Such as cifar100_lt, folder:PATH, npz:PATH or table:PATH [digits_lt]."
    ),
]
Algorithm = Annotated[str | None, typer.Option("--algorithm", metavar="NAME", help="Base algorithm [fedavg].")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="YAML with fields of the config.")]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="cpu|paper", help="Size of the dataset's defaults [cpu where no GPU is seen]."),
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="First place to look for images [FEDRELA_DATA].")
]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")]
JsonOutput = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress goes to stderr.")]

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether --debug stands on the line."""


class Terminated(BaseException):
    """SIGTERM arrived."""


@contextmanager
def shielded() -> Iterator[None]:
    """SIGINT and SIGTERM are not heard: what is written here is written whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def gpu_seen() -> bool:
    """Whether torch can use a CUDA device."""
    import torch

    return torch.cuda.is_available()


def choose_size(profile: str | None, device: str = "auto") -> tuple[Size, str]:
    """The size profile and the line that says why.

    Raises:
        ConfigError: unknown name.
    """
    for size in SIZES:
        if profile == size:
            return size, f"profile: {size} (asked for)"
    if profile is not None:
        raise ConfigError(f"--profile {profile}: unknown size; choose cpu (small, fast) or paper (published sizes)")
    if device == "cpu":
        return "cpu", "profile: cpu (--device cpu)"
    return ("paper", "profile: paper (GPU seen)") if gpu_seen() else ("cpu", "profile: cpu (no GPU seen)")


def choose_device(device: str) -> Literal["cpu", "cuda"]:
    """`auto` is cuda where torch can use it.

    Raises:
        ConfigError: unknown name, or cuda without a usable GPU.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: unknown device; choose auto, cpu or cuda")
    if device == "cuda" and not gpu_seen():
        raise ConfigError("--device cuda: torch sees no GPU here; use --device cpu, or check the driver with doctor")
    return "cuda" if device == "cuda" or (device == "auto" and gpu_seen()) else "cpu"


def attempt(faults: list[str], default: T, make: Callable[[], T]) -> T:
    """What `make` gives, or `default` with its faults noted, so that one message can hold all of them."""
    try:
        return make()
    except ConfigError as error:
        faults += error.faults
        return default


def scanned(ctx: typer.Context) -> list[str]:
    """A list to which a verb adds its faults: it starts with those of the command line's own spelling."""
    return list(faults_of_line(ctx))


def resolve_command(
    ctx: typer.Context,
    dataset: str | None,
    config: Path | None,
    size: Size,
    faults: list[str],
    algorithm: str | None = None,
    seed: int | None = None,
) -> Resolved:
    """The configuration of a command line.

    Raises:
        ConfigError: its faults, after those in `faults` that were found before.
    """
    overrides = overrides_of(ctx)
    faults += contradictions(dataset, algorithm, overrides)
    resolved = attempt(faults, None, lambda: resolve(dataset, algorithm, size, config, overrides, seed))
    if faults or resolved is None:
        raise ConfigError(list(dict.fromkeys(faults)))
    return resolved


def contradictions(dataset: str | None, algorithm: str | None, overrides: Mapping[str, Any]) -> Iterator[str]:
    """Named options and dotted overrides that give one field different values."""
    from fedrela_bench.data.names import parse_dataset_name

    named: dict[str, tuple[str, str]] = {}
    if algorithm is not None:
        named["federation.algorithm"] = (f"--algorithm {algorithm}", algorithm)
    try:
        source, profile = parse_dataset_name(dataset) if dataset is not None else (None, None)
    except ConfigError:
        source, profile = None, None
    named |= {"data.source": (f"--dataset {dataset}", source)} if source is not None else {}
    named |= {"data.profile": (f"--dataset {dataset}", profile)} if profile is not None else {}
    for name, (option, value) in named.items():
        if name in overrides and overrides[name] != value:
            yield f"{option} and --{name} {overrides[name]} contradict each other; keep one"


def tell(*lines: str, to_stderr: bool = False) -> None:
    """Print lines for people."""
    for line in lines:
        print(line, file=sys.stderr if to_stderr else sys.stdout, flush=True)


def data_summary(dataset: FederatedDataset) -> list[str]:
    """What a run trains on: images, classes, clients, test set, digest, and what a user must know."""
    counts = dataset.class_counts
    sizes = sorted(len(part) for part in dataset.clients)
    empty = sizes.count(0)
    channels, height, width = dataset.input_shape
    unit = "rows" if dataset.is_table else "images"
    shape = f"{width} inputs" if dataset.is_table else f"{height}x{width}x{channels}"
    spread = f"{sizes[0]}/{sizes[len(sizes) // 2]}/{sizes[-1]}"
    return [
        f"data: {dataset.name}, {len(dataset.labels)} training {unit} of {shape} in "
        f"{dataset.num_classes} classes ({counts.max()} to {counts.min()} each), {len(dataset.test_labels)} to test",
        f"clients: {len(sizes)}, {empty} empty; {unit} min/median/max {spread}",
        f"digest: {dataset.digest}",
        *(f"note: {note}" for note in dataset.notes),
    ]
