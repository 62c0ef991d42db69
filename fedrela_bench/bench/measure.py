"""Times a case: this package's rounds beside the naive loop, the bare loop and the arithmetic, in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from fedrela_bench.bench.bare import PARTS, BareLoop
from fedrela_bench.bench.case import Case
from fedrela_bench.bench.figures import lane_json, lane_name, ratio_json, ratios, whole_over_timed, with_amp
from fedrela_bench.bench.floors import LayerFloor, layers_of, product_rate, total_flops
from fedrela_bench.bench.machine import peak_bytes
from fedrela_bench.bench.naive_process import NaiveProcess
from fedrela_bench.bench.timing import Span, spread, timed
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import RunError
from fedrela_bench.nested import Json
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.evaluate import EVAL_BATCH
from fedrela_bench.simulation.precision import DTYPES

BLOCK_SECONDS = 0.1
"""Shorter rounds are timed several in a row."""
MOST_ROUNDS = 50
TURN_SECONDS, MOST_TURNS = 2.0, 10
"""A repetition takes every lane in turn, and takes short lanes several times for about so long."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How everything is timed."""

    rounds: int = 3
    """Repetitions after the warm-up; every figure is the median over them."""
    workers: tuple[int, ...] = (1,)
    amps: tuple[str, ...] = ("none",)
    device: str = "cpu"

    @property
    def place(self) -> torch.device:
        """The device as torch knows it."""
        return torch.device(self.device)


@dataclass
class Lane:
    """One of the things that are timed in turn."""

    name: str
    measure: Callable[[int], Span]
    """Runs it so many times in a row and gives the mean."""
    times: int = 1
    spans: list[Span] = field(default_factory=list)

    def warm_up(self) -> float:
        """A call or two that do not count; short ones are then timed several in a row. Gives the seconds of a turn."""
        seconds = self.measure(1).wall
        if seconds < BLOCK_SECONDS:
            seconds = self.measure(1).wall
            self.times = max(1, min(MOST_ROUNDS, round(BLOCK_SECONDS / seconds)))
        return seconds * self.times

    def take(self) -> None:
        """One more turn."""
        self.spans.append(self.measure(self.times))


def lane(name: str, call: Callable[[], object], device: torch.device) -> Lane:
    """A lane that runs in this process."""
    return Lane(name, lambda times: timed(call, device, times))


class RoundFloor:
    """Seconds of a round's convolutions and linear layers alone, and of its operations as matrix products.

    Args:
        case: what is timed.
        amp: number format.
        device: where.
    """

    def __init__(self, case: Case, amp: str, device: torch.device) -> None:
        config, simulation = case.config, Simulation(case.config, case.dataset, device)
        kept = DTYPES[config.training.dtype]
        dtype = kept if amp == "none" else torch.bfloat16
        layers = layers_of(simulation.model.net, case.dataset.input_shape, device, kept)
        self.images = (case.samples, case.evaluated)
        batches = (config.training.batch_size, min(EVAL_BATCH, max(1, case.evaluated)))
        self.floors = [
            LayerFloor(layers, batch, training, device, dtype)
            for batch, training, images in zip(batches, (True, False), self.images, strict=True)
            if images
        ]
        self.flops = total_flops(layers, *self.images)
        self.device, self.dtype = device, dtype
        self.seconds: list[float] = []
        self.rates: list[float] = []

    def take(self) -> None:
        """One more repetition."""
        images = [count for count in self.images if count]
        pairs = zip(images, self.floors, strict=True)
        self.seconds.append(sum(count * floor.seconds_per_image() for count, floor in pairs))
        self.rates.append(product_rate(self.device, self.dtype))

    def to_json(self) -> Json:
        """Seconds a round of both floors, operations and rate."""
        rate = spread(self.rates).median
        return {
            "layers_seconds": spread(self.seconds).to_json(),
            "products_seconds": self.flops / rate,
            "flops": self.flops,
            "product_flops_per_second": rate,
        }


def measure_round(case: Case, settings: Settings, say: Say) -> Json:
    """Figures of a case of kind ``round``.

    Args:
        case: what is timed.
        settings: repetitions and variants.
        say: takes a line of progress.

    Raises:
        RunError: the simulation diverged, or the process of the naive loop ended.
    """
    device, evaluated = settings.place, bool(case.evaluated)
    with ExitStack() as open_things:
        ours = _ours(case, settings, open_things)
        seconds = sum(item.warm_up() for item in ours)
        peaks = _peaks(device)
        naive = open_things.enter_context(NaiveProcess(case, settings.device))
        bare = {
            amp: BareLoop(_with(case.config, amp), case.dataset, settings.device, evaluated) for amp in settings.amps
        }
        others = [lane(with_amp("bare", amp), loop.run_round, device) for amp, loop in bare.items()]
        lanes = [*ours, *others, Lane("naive", naive.measure)]
        seconds += sum(item.warm_up() for item in lanes[len(ours) :])
        for loop in bare.values():
            loop.seconds = dict.fromkeys(PARTS, 0.0)
        floors = {amp: RoundFloor(case, amp, device) for amp in settings.amps}
        for repetition in range(settings.rounds):
            take_turns(lanes, seconds)
            for floor in floors.values():
                floor.take()
            say(f"{case.key}: repetition {repetition + 1} of {settings.rounds}")
    parts = {
        amp: {name: value / (item.times * len(item.spans)) for name, value in loop.seconds.items()}
        for (amp, loop), item in zip(bare.items(), others, strict=True)
    }
    figures = _figures(case, settings, lanes, floors, parts)
    return {**figures, **peaks, "peak_rss_naive_mib": naive.peak / 2**20}


def _ours(case: Case, settings: Settings, open_things: ExitStack) -> list[Lane]:
    lanes = []
    for amp in settings.amps:
        for workers in settings.workers:
            config = _with(case.config, amp)
            simulation = open_things.enter_context(Simulation(config, case.dataset, settings.device, workers))
            lanes.append(lane(lane_name(amp, workers), _round_of(simulation, case), settings.place))
    return lanes


def _round_of(simulation: Simulation, case: Case) -> Callable[[], None]:
    def run() -> None:
        if simulation.run_round().status != "ok":
            raise RunError(f"{case.key} diverged, so its times mean nothing; report this with the machine's details")

    return run


def take_turns(lanes: Sequence[Lane], seconds: float) -> None:
    """One repetition: every lane once or, where all together are short, several times, from another one on each time.

    Args:
        lanes: in order; what is compared most closely should be neighbours.
        seconds: of a turn of all of them.
    """
    for _ in range(max(1, min(MOST_TURNS, round(TURN_SECONDS / seconds)))):
        start = len(lanes[0].spans) % len(lanes)
        for item in (*lanes[start:], *lanes[:start]):
            item.take()


def _figures(
    case: Case,
    settings: Settings,
    lanes: list[Lane],
    floors: dict[str, RoundFloor],
    parts: dict[str, dict[str, float]],
) -> Json:
    on_gpu = settings.place.type != "cpu"
    times = {lane.name: lane.spans for lane in lanes}
    seconds = {amp: floor.seconds for amp, floor in floors.items()}
    whole = _whole(case, parts)
    return {
        "lanes": {name: lane_json(spans, case.samples, whole) for name, spans in times.items()},
        "ratios": {name: ratio_json(values) for name, values in ratios(times, seconds, on_gpu).items()},
        "parts": {} if on_gpu else parts,
        "floors": {amp: floor.to_json() for amp, floor in floors.items()},
    }


def _whole(case: Case, parts: dict[str, dict[str, float]]) -> float:
    first = next(iter(parts.values()))
    return whole_over_timed(first["evaluation"], sum(first.values()), case.left_out)


def _peaks(device: torch.device) -> Json:
    """Memory so far, before anything but this package's rounds ran."""
    peaks = {"peak_rss_mib": peak_bytes() / 2**20}
    on_gpu = device.type == "cuda"
    return peaks | ({"peak_gpu_mib": torch.cuda.max_memory_allocated(device) / 2**20} if on_gpu else {})


def _with(config: TrialConfig, amp: str) -> TrialConfig:
    return config.replace({"training.amp": amp})
