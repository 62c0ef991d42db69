"""The check's document as text."""

from __future__ import annotations

from collections.abc import Iterator

from fedrela_bench.nested import Json

NAME = 46
"""Columns for a kernel's name."""


def table(document: Json) -> str:
    """What was found, step by step, a line for each thing."""
    machine = document["machine"]
    lines = [
        f"{machine['device']}, torch {machine['torch']}, fedrela-bench {machine['fedrela_bench']}",
        f"{document['seconds']:.0f} s allowed{'' if document['finished'] else '; not finished'}",
        "",
        f"{'step':<22}{'outcome':<16}{'seconds':>8}",
    ]
    lines += [f"{step['name']:<22}{step['status']:<16}{step['seconds']:>8.1f}" for step in document["steps"]]
    lines += _times(document["steps"])
    for step in document["steps"]:
        lines += _findings(step)
    for step in document["steps"]:
        lines += _profile(step)
    return "\n".join(lines)


def _times(steps: list[Json]) -> Iterator[str]:
    timed = [step for step in steps if "round_seconds" in step["results"]]
    if not timed:
        return
    yield ""
    heads = f"{'round s':>9}  {'images/s':>9}{'step ms':>9}{'eval s':>8}{'peak MiB':>10}{'busy':>6}"
    yield f"{'workload':<20}{heads}  published"
    for step in timed:
        found = step["results"]
        mark = "~" if found["extrapolated"] else " "
        peak = _or_dash(found["peak_allocated_mib"], ",.0f")
        busy = _or_dash(found.get("profile", {}).get("device_busy"), ".0%")
        published = _or_dash(found.get("published_seconds"), ".2f")
        yield (
            f"{step['name']:<20}{found['round_seconds']:>9.2f}{mark} {found['images_per_second']:>9,.0f}"
            f"{1e3 * found['step_seconds']:>9.2f}{found['evaluation_seconds']:>8.2f}{peak:>10}{busy:>6}  {published}"
        )
    yield "~ extrapolated from clients and steps that were timed; busy: the device's share of a step"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _findings(step: Json) -> Iterator[str]:
    """What is wrong or worth knowing in one step."""
    found = step["results"]
    lines = [step["error"]] if step["error"] else []
    lines += [found[name] for name in ("fault", "message") if found.get(name)]
    lines += [f"{name} ended with {error}" for name, error in found.get("errors", {}).items()]
    lines += [line for name, case in found.get("cases", {}).items() for line in _case(name, case)]
    lines += _waits(found.get("cases", {}))
    if found.get("not_run"):
        lines.append(f"no time for: {', '.join(found['not_run'])}")
    if lines:
        yield ""
        yield f"{step['name']}:"
        yield from (f"  {line}" for line in lines)


def _case(name: str, case: Json) -> Iterator[str]:
    if not case.get("equal", True):
        kinds = ("parameters", "statistics", "kept")
        sizes = ", ".join(f"{kind} {case[kind]:.1e}" for kind in kinds)
        yield f"{name} differs: {sizes}, {case['labels']} labels, figures: {', '.join(case['figures']) or 'none'}"
    if not case.get("same", True):
        counts = ", ".join(f"{case[kind]} {kind}" for kind in ("parameters", "statistics", "labels"))
        yield f"{name} does not repeat: {counts} differ{'' if case['finite'] else ', and it diverged'}"


def _waits(cases: Json) -> Iterator[str]:
    """Every place where the host waits, and who comes there."""
    places: dict[tuple[str, str], list[str]] = {}
    for name, case in cases.items():
        for wait in case.get("waits", ()):
            places.setdefault((wait["place"], wait["line"]), []).append(name)
    for (place, line), names in places.items():
        yield f"{place}: {line}"
        yield f"  {len(names)} of {len(cases)} wait there: {', '.join(names)}"


def _profile(step: Json) -> Iterator[str]:
    found = step["results"].get("profile")
    if not found:
        return
    yield ""
    yield f"{step['name']}: {found['verdict']}"
    if found["device_busy"] is not None:
        yield (
            f"  a step takes {found['step_ms']:.2f} ms, the device works {found['device_busy_ms']:.2f} ms of it; "
            f"{found['kernels_per_step']:.0f} kernels, {found['launches_per_step']:.0f} launches, "
            f"{found['copies_per_step']:.1f} copies"
        )
    yield f"  {'':<{NAME}}{'ms/step':>9}{'calls':>8}{'share':>7}"
    for kernel in found["top"]:
        name = kernel["name"][: NAME - 2]
        yield f"  {name:<{NAME}}{kernel['ms_per_step']:>9.3f}{kernel['calls_per_step']:>8.1f}{kernel['share']:>7.1%}"
