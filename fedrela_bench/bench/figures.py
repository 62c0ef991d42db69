"""From repeated times to medians, rates and ratios; plain arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fedrela_bench.bench.timing import Span, spread
from fedrela_bench.nested import Json

Times = Mapping[str, Sequence[Span]]
"""Lane name to one span per turn; the same turns for all."""


def lane_name(amp: str, workers: int) -> str:
    """Such as ``ours``, ``ours w2`` or ``ours bf16 w2``."""
    return "ours" + with_amp("", amp) + ("" if workers == 1 else f" w{workers}")


def with_amp(name: str, amp: str) -> str:
    """The name of something in that number format."""
    return name if amp == "none" else f"{name} {amp}"


def parallel(lane: str) -> bool:
    """Whether a lane spreads over worker processes."""
    return lane.rpartition(" ")[2].startswith("w")


def amp_of(lane: str) -> str:
    """The number format in a lane's name."""
    return "bf16" if "bf16" in lane.split() else "none"


def ratios(times: Times, floors: Mapping[str, Sequence[float]], on_gpu: bool) -> dict[str, list[float]]:
    """The ratios that this machine's speed cancels out of, one value per turn.

    A process that computes alone is compared by its cores' seconds, which other load on the machine changes least;
    worker processes and GPUs by the clock on the wall.

    Args:
        times: lanes ``ours ...``, ``naive`` and ``bare ...``.
        floors: seconds of a round's bare layers by number format.
        on_gpu: whether a GPU computed.
    """
    found: dict[str, list[float]] = {}
    for lane, spans in times.items():
        if not lane.startswith("ours"):
            continue
        wall, amp = on_gpu or parallel(lane), amp_of(lane)
        found |= _over(f"{lane}/naive", spans, times.get("naive"), wall)
        if not parallel(lane):
            found |= _over(with_amp("round", amp) + "/bare", spans, times.get(with_amp("bare", amp)), wall)
            if amp in floors:
                floor = median(floors[amp])
                found[f"{lane}/floor"] = [_clock(span, wall) / floor for span in spans]
    return found


def _over(name: str, spans: Sequence[Span], base: Sequence[Span] | None, wall: bool) -> dict[str, list[float]]:
    if base is None:
        return {}
    return {name: [_clock(a, wall) / _clock(b, wall) for a, b in zip(spans, base, strict=True)]}


def _clock(span: Span, wall: bool) -> float:
    return span.wall if wall else span.cpu


def overhead(round_over_bare: float) -> float:
    """Share of a round that is neither forward, backward, optimiser step nor evaluation; below 0 it is noise."""
    return 1 - 1 / round_over_bare


def lane_json(spans: Sequence[Span], samples: int, whole: float) -> Json:
    """One lane's figures.

    Args:
        spans: of its rounds.
        samples: images that a round trains on, once per epoch.
        whole: a round of the whole workload over the one that was timed.
    """
    wall = spread([span.wall for span in spans])
    return {
        "seconds": wall.to_json(),
        "cpu_seconds": spread([span.cpu for span in spans]).to_json(),
        "rounds_per_second": 1 / wall.median,
        "samples_per_second": samples / wall.median,
        "whole_round_seconds": wall.median * whole,
    }


def ratio_json(values: Sequence[float]) -> Json:
    """Median, quartiles and all values of a ratio."""
    return {**spread(values).to_json(), "values": list(values)}


def whole_over_timed(evaluation: float, total: float, left_out: tuple[float, float]) -> float:
    """Seconds of the whole workload's round over those of the shortened one.

    Args:
        evaluation: seconds of the evaluation.
        total: seconds of the round.
        left_out: factors of training and of evaluation.
    """
    train, test = left_out
    return ((total - evaluation) * train + evaluation * test) / total
