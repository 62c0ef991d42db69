"""The result of a bench run: one JSON document, and the table that people read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedrela_bench.bench.figures import overhead
from fedrela_bench.nested import Json

SCHEMA = 1
"""Changes when a reader of the document must change."""
WIDTH = 80


def table(result: Json) -> str:
    """The document as text of at most 80 columns without colour."""
    machine = result["machine"]
    lines = [
        *_wrapped(f"{machine['cpu']}, {' '.join(machine['flags'])}"),
        f"{machine['device']}, {machine['cores']} cores, {machine['threads']} thread, torch {machine['torch']}",
    ]
    for case in result["cases"]:
        lines += ["", *_wrapped(f"{case['key']}: {case['purpose']}"), *_notes(case)]
        lines += [*_lanes(case), *_floors(case), *_parts(case), *_memory(case), *_ratios(case)]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, WIDTH, subsequent_indent="  ")


def _notes(case: Json) -> Iterator[str]:
    for note in case["notes"]:
        yield from _wrapped(f"  note: {note}")


def _lanes(case: Json) -> Iterator[str]:
    if "lanes" not in case:
        return
    shortened = max(case["left_out"]) > 1 and not case["short"]
    whole = f"{'whole':>9}" if shortened else ""
    yield f"  {'seconds a round':<23}{'clock':>8}{'quartiles':>17}{'core':>8}{'images/s':>10}{whole}"
    for name, lane in case["lanes"].items():
        seconds, core = lane["seconds"], lane["cpu_seconds"]["median"]
        rate = f"{lane['samples_per_second']:,.0f}"
        whole = f"{_number(lane['whole_round_seconds']):>9}" if shortened else ""
        clock = f"{_number(seconds['median']):>8}{_between(seconds):>17}"
        yield f"  {LANES.get(name, name):<23}{clock}{_number(core):>8}{rate:>10}{whole}"


LANES = {"naive": "naive research loop", "bare": "bare steps, evaluation", "training": "training round"}


def _floors(case: Json) -> Iterator[str]:
    for amp, floor in case.get("floors", {}).items():
        kind = "float32" if amp == "none" else "bfloat16"
        layers, rate = floor["layers_seconds"], floor["product_flops_per_second"] / 1e9
        yield f"  {f'{kind} layers alone':<23}{'':>8}{_between(layers):>17}{_number(layers['median']):>8}"
        speed = f"at {rate:,.0f} GFLOP/s" if rate < 10_000 else f"at {rate / 1000:,.0f} TFLOP/s"
        yield f"  {f'{kind} products':<23}{'':>8}{speed:>17}{_number(floor['products_seconds']):>8}"


def _between(spread: Mapping[str, float]) -> str:
    return f"{_number(spread['low'])} - {_number(spread['high'])}"


def _parts(case: Json) -> Iterator[str]:
    for amp, parts in case.get("parts", {}).items():
        listed = ", ".join(f"{name} {_number(seconds)}" for name, seconds in parts.items())
        yield from _wrapped(f"  seconds of a round{'' if amp == 'none' else f' in {amp}'}: {listed}")
        name = "round/bare" if amp == "none" else f"round {amp}/bare"
        if name in case["ratios"]:
            yield f"  everything else: {100 * overhead(case['ratios'][name]['median']):.1f} % of the round"


def _memory(case: Json) -> Iterator[str]:
    for clients, values in case.get("memory", {}).items():
        peak, start = values["peak"] / 2**20, values["start"] / 2**20
        yield f"  {int(clients):>8,} clients: peak {peak:,.0f} MiB, of which {start:,.0f} MiB before the first round"
    if "peak_rss_mib" in case:
        naive = f", of the naive loop {case['peak_rss_naive_mib']:,.0f} MiB" if "peak_rss_naive_mib" in case else ""
        yield f"  peak memory with libraries: ours {case['peak_rss_mib']:,.0f} MiB{naive}"
    if "peak_gpu_mib" in case:
        yield f"  peak memory of ours on the GPU: {case['peak_gpu_mib']:,.0f} MiB"


def _ratios(case: Json) -> Iterator[str]:
    yield f"  {'ratio':<23}{'median':>8}{'quartiles':>17}"
    for name, ratio in case["ratios"].items():
        between = f"{ratio['low']:.3f} - {ratio['high']:.3f}"
        aim = case["targets"].get(name)
        shown = "" if aim is None else f"   aim {aim:.3f} {'met' if ratio['median'] <= aim else 'missed'}"
        yield f"  {name:<23}{ratio['median']:>8.3f}{between:>17}{shown}"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def ratios_of(result: Json) -> dict[str, dict[str, float]]:
    """Medians of all ratios by case and name."""
    cases: list[Mapping[str, Any]] = result["cases"]
    return {case["key"]: {name: ratio["median"] for name, ratio in case["ratios"].items()} for case in cases}
