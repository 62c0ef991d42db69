"""How long a configuration takes on this machine: measured in seconds, kept for the machine, turned into hours."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrela_bench.bench.machine import describe
from fedrela_bench.bench.relabeling import relabel_pass
from fedrela_bench.bench.timing import timed
from fedrela_bench.bench.workloads import ENDLESS
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import FederatedDataset
from fedrela_bench.data.sources.places import default_cache_dir
from fedrela_bench.files import write_atomically
from fedrela_bench.models import default_model
from fedrela_bench.nested import digest
from fedrela_bench.simulation import SIMULATION_VERSION, Simulation

VERSION = 2
"""Changes whenever older rates can no longer be used."""
FILE = "rates.json"
PROBE = 4
"""Images of the first, smallest piece."""
MOST_BATCHES, MOST_TESTED = 16, 800
SHARE, ROUNDS_SHARE = 0.1, 0.4
"""Of the time left, for one round or one evaluation of a larger piece, and for all its rounds together."""
BACKWARD = 3
"""Times a forward pass: a training step."""
LARGEST = 3
"""Times the seconds asked for: what rounds may take whose cost does not come from their images."""
CYCLE = 5
"""Rounds that are timed together: some algorithms ask all clients for something every few rounds."""


@dataclass(frozen=True)
class Rate:
    """Seconds that the parts of a run take on this machine."""

    step_image: float
    """Training, per image and epoch."""
    client: float
    """Per participant and round, whatever it trains on."""
    tested: float
    """Evaluation, per image."""
    relabelled: float
    """A relabelling pass, per image."""
    server: float = 0.0
    """Per round, however many take part."""

    def run_seconds(self, config: TrialConfig, images: int, tested: int) -> float:
        """A full run of the configuration.

        Args:
            config: rounds, participation, epochs and evaluations are read.
            images: of all clients together.
            tested: of the test set.
        """
        federation = config.federation
        share = max(1, int(federation.participation * federation.clients)) / federation.clients
        trained = images * share * config.training.local_epochs * self.step_image
        round_seconds = trained + federation.clients * share * self.client + self.server
        evaluations = math.ceil(federation.rounds / config.evaluation.eval_every)
        return federation.rounds * round_seconds + evaluations * tested * self.tested


def model_name(config: TrialConfig, dataset: FederatedDataset) -> str:
    """The network that the configuration trains."""
    if config.training.model != "auto":
        return config.training.model
    return default_model(config.data.source, dataset.input_shape, config.data.profile)


def rate_key(config: TrialConfig, dataset: FederatedDataset, device: str) -> str:
    """Names everything that decides a rate: network, images, batch, algorithm, number format, machine and versions.

    How classes are thinned and dealt belongs to it: some algorithms draw an epoch of another length from it.
    """
    training, relabel, data = config.training, config.relabel, config.data
    what = {
        "model": [model_name(config, dataset), training.norm, dataset.num_classes],
        "images": [*dataset.input_shape, dataset.augment, dataset.normalization is None],
        "classes": [data.profile, data.imbalance_factor, data.n_max, data.partition, data.alpha],
        "clients": config.federation.clients,
        "batch": training.batch_size,
        "formats": [training.dtype, training.amp, training.tf32],
        "algorithm": [config.federation.algorithm, config.federation.options],
        "posterior": [relabel.posterior_views, relabel.posterior_bn, relabel.posterior_augment, relabel.posterior_head],
    }
    return digest([VERSION, SIMULATION_VERSION, what, describe(device)])


def rate_of(
    config: TrialConfig, dataset: FederatedDataset, device: str, seconds: float = 5.0, folder: Path | None = None
) -> Rate:
    """The kept rate of a configuration, measured and kept where there is none.

    Args:
        config: what is run.
        dataset: its images.
        device: ``cpu`` or ``cuda``.
        seconds: a measurement takes about this long.
        folder: where rates are kept; by default the cache of data.
    """
    path, key = (folder or default_cache_dir()) / FILE, rate_key(config, dataset, device)
    known = _kept(path).get(key)
    if known is not None:
        return known
    rate = measure_rate(config, dataset, device, seconds)
    _keep(path, key, rate)
    return rate


def _kept(path: Path) -> dict[str, Rate]:
    """Rates of a file; an absent, damaged or older one holds none."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, LookupError):
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["version"] == VERSION:
            return {key: _checked(Rate(**rate)) for key, rate in values["rates"].items()}
    return {}


def _checked(rate: Rate) -> Rate:
    if not all(isinstance(value, float) and value >= 0 and math.isfinite(value) for value in asdict(rate).values()):
        raise ValueError("a rate is a number of seconds")
    return rate


def _keep(path: Path, key: str, rate: Rate) -> None:
    rates = {name: asdict(value) for name, value in (_kept(path) | {key: rate}).items()}
    # What cannot be kept is measured again; a forecast does not fail for it.
    with contextlib.suppress(OSError):
        write_atomically(path, json.dumps({"version": VERSION, "rates": rates}, indent=1).encode())


def measure_rate(config: TrialConfig, dataset: FederatedDataset, device: str, seconds: float = 5.0) -> Rate:
    """Time pieces of the configuration: a few batches of one client, some test images, one relabelling pass.

    Pieces grow as far as the time allows, from a few images to many batches. The two largest tell what every image
    costs from the rest; dealing the largest one to two clients tells what a client costs from what a round costs.

    Args:
        config: what is run.
        dataset: its images.
        device: ``cpu`` or ``cuda``.
        seconds: about how long to measure on a machine that does nothing else; where a batch of a large network takes
            longer, a part of it is timed.
    """
    place, batch = torch.device(device), config.training.batch_size
    begun = _now(place)
    piece = _Piece(config, dataset, place, PROBE, PROBE)
    setup = _now(place) - begun

    def left() -> float:
        return begun + seconds - _now(place) - setup

    points = [(piece.images, piece.round_seconds(left()))]
    tested = piece.test_seconds()
    for wanted in (batch, batch * MOST_BATCHES):
        images = _fitting(wanted, left() * SHARE, points[-1][1] / points[-1][0])
        if images <= points[-1][0]:
            break
        larger = _Piece(config, dataset, place, images, _fitting(MOST_TESTED, left() * SHARE, tested))
        if larger.images <= points[-1][0]:
            break
        piece = larger
        points.append((piece.images, piece.round_seconds(left())))
        tested = piece.test_seconds()

    def affordable(round_seconds: float) -> bool:
        return setup < seconds / 4 and seconds - left() + 3 * round_seconds < LARGEST * seconds

    step, rest = _line(points)
    if len(points) == 1 and affordable(2 * points[0][1]):
        piece = _Piece(config, dataset, place, 2 * PROBE, PROBE)
        step, rest = _doubled(points[0][1], piece.round_seconds(left()), piece.images, BACKWARD * tested)
    client = rest
    if rest and affordable(rest + step * piece.images):
        shared = _Piece(config, dataset, place, piece.images, PROBE, holders=2)
        client = min(rest, max(0.0, shared.round_seconds(left()) - step * shared.images - rest))
    return Rate(step, client, tested, _seconds(piece.relabel, place) / piece.images, rest - client)


def _now(place: torch.device) -> float:
    """Seconds of this process's cores, or of the clock where a GPU works."""
    return time.process_time() / torch.get_num_threads() if place.type == "cpu" else time.perf_counter()


def _seconds(call: Callable[[], object], place: torch.device, times: int = 1) -> float:
    """Mean over calls in a row, as on a machine that does nothing else."""
    span = timed(call, place, times)
    return min(span.wall, span.cpu) if place.type == "cpu" else span.wall


def _fitting(wanted: int, seconds: float, each: float) -> int:
    return max(1, min(wanted, int(seconds / max(each, 1e-9))))


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Seconds per image and per round, from the two largest pieces; per image only where noise hides the rest."""
    images, seconds = points[-1]
    if len(points) > 1:
        fewer, less = points[-2]
        step = (seconds - less) / (images - fewer)
        if step > 0:
            return step, max(0.0, seconds - step * images)
    return seconds / images, 0.0


def _doubled(once: float, twice: float, images: int, least: float) -> tuple[float, float]:
    """Seconds per image and per round where a round of a few images is all that time allows.

    Args:
        once: seconds of a round of half as many images.
        twice: seconds of a round of all of them.
        images: how many.
        least: seconds that training an image takes at least.
    """
    # What grows less than by half comes from the round: so small a difference would be noise.
    step = max(least, 2 * (twice - once) / images) if twice > 1.5 * once else least
    return step, max(0.0, twice - step * images)


class _Piece:
    """The configuration where only the largest clients hold images, and only a part of theirs."""

    def __init__(
        self,
        config: TrialConfig,
        dataset: FederatedDataset,
        place: torch.device,
        images: int,
        tested: int,
        holders: int = 1,
    ) -> None:
        largest = np.argsort([-len(rows) for rows in dataset.clients], kind="stable")[:holders]
        parts = {int(client): _evenly(dataset.clients[client], -(-images // holders)) for client in largest}
        nothing = np.empty(0, dtype=np.int64)
        rows = _evenly(np.arange(len(dataset.test_labels)), tested)
        cut = replace(
            dataset,
            clients=tuple(parts.get(client, nothing) for client in range(len(dataset.clients))),
            test_images=np.array(dataset.test_images[rows]),
            test_labels=dataset.test_labels[rows],
        )
        self.run = Simulation(config.replace(_TIMED | {"relabel.tau": config.relabel.tau or 0.05}), cut, place)
        self.relabel = relabel_pass(self.run)
        self.place, self.images, self.tested = place, sum(map(len, parts.values())), len(rows)

    def round_seconds(self, left: float) -> float:
        """Of a training round but the first, in which no client has a state of its own yet.

        Args:
            left: seconds; as many rounds are timed as a part of them allows.
        """
        first = _seconds(self.run.run_round, self.place)
        count = max(1, int(left * ROUNDS_SHARE / max(first, 1e-9)))
        spans = [min(count, CYCLE)] * (2 if count >= 2 * CYCLE else 1)
        return min(_seconds(self.run.run_round, self.place, times) for times in spans)

    def test_seconds(self) -> float:
        """Of the evaluation of one image."""
        return _seconds(self.run.evaluate, self.place) / self.tested


_TIMED: dict[str, Any] = {
    "federation.rounds": ENDLESS,
    "federation.participation": 1.0,
    "training.local_epochs": 1,
    "evaluation.eval_every": ENDLESS,
    "evaluation.selection": "none",
    "evaluation.early_stop_patience": 0,
    "relabel.start": ENDLESS,
    "relabel.author_resume": False,
}


def _evenly(rows: np.ndarray, count: int) -> np.ndarray:
    places = np.linspace(0, len(rows) - 1, min(count, len(rows)))
    return rows[places.round().astype(np.int64)]


def study_hours(seconds: Mapping[str, float], longest: float, slots: int) -> float:
    """Hours of a study.

    Args:
        seconds: of all that is computed, by algorithm.
        longest: seconds of the longest single run; nothing takes less.
        slots: runs side by side.
    """
    total = sum(seconds.values())
    return max(total / slots, min(longest, total)) / 3600
