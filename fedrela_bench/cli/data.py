"""`fedrela-bench data show|get`: look at a dataset as clients see it, or fetch one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrela_bench.cli import common, plugged
from fedrela_bench.cli.command import BenchGroup, OverrideCommand, overrides_of
from fedrela_bench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import numpy as np

    from fedrela_bench.config import TrialConfig
    from fedrela_bench.data.federated import FederatedDataset

MOST_COLUMNS = 40
MOST_CLASSES = 200
MANY_SHOT, FEW_SHOT = 100, 20


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    data = typer.Typer(cls=BenchGroup, help="Show or fetch a dataset.", rich_markup_mode=None)
    data.command("show", cls=OverrideCommand)(show)
    data.command("get", cls=OverrideCommand)(get)
    app.add_typer(data, name="data")


def show(
    ctx: typer.Context,
    dataset: common.Dataset = None,
    config: common.ConfigFile = None,
    profile: common.Profile = None,
    data_dir: common.DataDir = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of the partition [1].")] = None,
    plugin: plugged.Plugin = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PNG", help="Client x class map [DATASET_clients.png here].")
    ] = None,
) -> int:
    """Counts, groups and client sizes of a dataset, and its client x class map as a PNG."""
    from fedrela_bench.data import load_dataset
    from fedrela_bench.reporting.figures import client_map, draw_client_map

    faults = common.scanned(ctx)
    size, why = common.attempt(faults, common.SMALL, lambda: common.choose_size(profile))
    faults += _picture_faults(out) if out is not None else []
    resolved = common.resolve_command(ctx, dataset, config, size, faults, None, seed)
    loaded = load_dataset(resolved.config, data_dir)
    common.tell(why, *common.data_summary(loaded), *describe(loaded, resolved.config))
    path = out or Path(f"{loaded.name}_clients.png")
    try:
        draw_client_map(client_map(loaded.client_counts, loaded.class_names), loaded.name, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); choose another --out") from None
    common.tell(f"client x class map: {path}")
    return 0


def _picture_faults(path: Path) -> list[str]:
    if path.is_dir():
        return [f"--out {path} is a folder; name a file, such as {path / 'clients.png'}"]
    if path.suffix.lower() != ".png":
        return [f"--out {path}: the map is a PNG; name it {path.with_name(path.stem + '.png')}"]
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        return [f"--out {path}: {parent} is a file, not a folder; choose another --out"]
    return [] if os.access(parent, os.W_OK) else [f"--out {path}: {parent} cannot be written; choose another --out"]


def describe(dataset: FederatedDataset, config: TrialConfig) -> list[str]:
    """Features of a table, counts per class, the groups that are scored, and clients by size."""
    from fedrela_bench.simulation.metrics import shot_groups, step_groups

    counts, names = dataset.class_counts, dataset.class_names
    split = config.evaluation.shot_split
    if dataset.minority:
        groups = step_groups(dataset.minority, dataset.num_classes)
    else:
        groups = shot_groups(counts if split == "train_counts" else dataset.client_counts, split)
    lines = [*_features(dataset), "", "class counts"]
    lines += _class_lines(counts, names)
    lines += ["", "groups"]
    for group, members in groups.items():
        share = counts[members].sum() / counts.sum() if members else 0.0
        lines.append(f"  {group:<9} {len(members):>4} classes  {share:>6.1%} of the {_units(dataset)}")
    return [*lines, *_shots(dataset, config), *_clients(dataset)]


def _class_lines(counts: np.ndarray, names: tuple[str, ...]) -> Iterator[str]:
    """A line per class; of very many the first, the last, and how many are between."""
    left_out = range(MOST_CLASSES // 2, len(names) - MOST_CLASSES // 2) if len(names) > MOST_CLASSES else range(0)
    for number, name in enumerate(names):
        if left_out and number == left_out[0]:
            yield f"  ... {len(left_out)} more classes"
        if number not in left_out:
            yield f"  {number:>3}  {name:<24.24} {int(counts[number]):>7}"


def _shots(dataset: FederatedDataset, config: TrialConfig) -> Iterator[str]:
    """ImageNet-LT's own groups, which are by images of a class and not by shares of all images."""
    if config.data.source != "imagenet":
        return
    counts = dataset.class_counts
    many, few = counts > MANY_SHOT, counts < FEW_SHOT
    yield f"groups usual for ImageNet-LT (more than {MANY_SHOT}, {FEW_SHOT} to {MANY_SHOT}, fewer; not scored)"
    for name, members in (("many", many), ("medium", ~many & ~few), ("few", few)):
        share = counts[members].sum() / counts.sum()
        yield f"  {name:<9} {int(members.sum()):>4} classes  {share:>6.1%} of the images"


def _units(dataset: FederatedDataset) -> str:
    return "rows" if dataset.is_table else "images"


def _features(dataset: FederatedDataset) -> Iterator[str]:
    if dataset.features:
        yield ""
        yield f"columns ({len(dataset.features)}, {dataset.input_shape[2]} inputs)"
        yield from (f"  {text}" for text in dataset.features[:MOST_COLUMNS])
        if len(dataset.features) > MOST_COLUMNS:
            yield f"  and {len(dataset.features) - MOST_COLUMNS} more"


def _clients(dataset: FederatedDataset) -> Iterator[str]:
    sizes, named = [len(part) for part in dataset.clients], dataset.client_names
    held = (dataset.client_counts > 0).sum(axis=1)
    order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
    yield ""
    yield f"clients by size ({_units(dataset)}, classes)"
    if named:
        yield from (f"{client:>4}: {sizes[client]:>6} {int(held[client]):>4}  {named[client]}" for client in order)
    else:
        cells = [f"{client:>4}: {sizes[client]:>6} {int(held[client]):>4}" for client in order]
        yield from ("  " + "   ".join(cells[start : start + 4]) for start in range(0, len(cells), 4))
    empty = [str(client) for client in range(len(sizes)) if not sizes[client]]
    yield f"empty clients: {', '.join(empty) or 'none'}"


def get(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as cifar100, or table:PATH.")],
    data_dir: common.DataDir = None,
    profile: common.Profile = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", help="Processes that decode images [processors]."),
    ] = None,
) -> int:
    """Find or download a dataset and fill the cache of decoded arrays, for machines without network."""
    import numpy as np

    from fedrela_bench.data.load import reading_of
    from fedrela_bench.data.request import request_faults
    from fedrela_bench.data.sources import Effort, locate, read_source
    from fedrela_bench.defaults import resolve

    faults = common.scanned(ctx)
    size, _ = common.attempt(faults, common.SMALL, lambda: common.choose_size(profile))
    resolved = common.attempt(faults, None, lambda: resolve(name, size=size, overrides=overrides_of(ctx)))
    faults += request_faults(resolved.config.data) if resolved is not None else []
    if faults or resolved is None:
        raise ConfigError(list(dict.fromkeys(faults)))
    data = resolved.config.data
    effort = Effort(workers, lambda line: common.tell(line, to_stderr=True), thorough=True)
    where = locate(data.source, data_dir, tell=effort.tell)
    raw = read_source(data.source, reading_of(data), data_dir, effort=effort)
    common.tell(*(f"note: {note}" for note in (*raw.stated, *raw.notes)), to_stderr=True)
    if not isinstance(raw.train_images, np.memmap):  # only what the cache holds is mapped
        raise StoreError(f"{name}: found{'' if where is None else f' in {where}'}, but not kept for machines offline")
    common.tell(f"{name}: ready" if where is None else f"{name}: ready, from {where}")
    return 0
