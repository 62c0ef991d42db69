"""Tables that every format must show rightly."""

from __future__ import annotations

from fedrela_bench.reporting.table import Column, Gain, Measure, Table

PLAIN = Table(
    title="Base & FedReLa, 30 %",
    columns=(
        Column("arm", "arm"),
        Column("tail", "tail", "measure"),
        Column("tail_gain", "Δ tail", "gain"),
        Column("tail_published", "tail (paper)", "published"),
        Column("n", "n", "count"),
    ),
    rows=(
        ("fed_avg", Measure(1 / 3, 0.25, 3), None, Measure(50.5), 3),
        ("a|b, τ=0.05", Measure(20.0, None, 1, "†"), Gain(1.5, 1.0, 2.0, 3, "†", 1.25, 1.75), None, 1),
        ("c", None, Gain(-1.0, None, None, 1), None, 1),
    ),
    facts=(("split", "test"), ("round rule", "last5")),
    notes=("† oracle.",),
    summary="Accuracy in %.",
)

HOSTILE = "<script>alert('x')</script> & \"q\" \\input{x} 100 % $x_1^2$ ~#| [1cm] *"
"""A name with everything that some format reads as a command."""


def _row(label: str, first: float, second: float) -> tuple[str, Measure, Gain, Measure, Measure, int]:
    gain = Gain(first - 60, first - 61, first - 59, 3, "", first - 60.5, first - 59.5)
    return label, Measure(first, 1.25, 3), gain, Measure(second, 0.5, 3), Measure(99.0), 3


GROUPED = Table(
    title=f"Two settings, {HOSTILE}",
    columns=(
        Column("arm", "arm"),
        Column("if50_tail", "tail", "measure", "IF = 50", ranked=True),
        Column("if50_tail_gain", "Δ tail", "gain", "IF = 50"),
        Column("if100_tail", "tail", "measure", "IF = 100 & α = 0.1", ranked=True),
        Column("if100_tail_published", "tail (paper)", "published", "IF = 100 & α = 0.1", ranked=True),
        Column("n", "n", "count"),
    ),
    rows=(
        _row("fedavg", 60.0, 70.004),
        _row("fedavg, τ=0.05, T=24 of 30 (paper's default)", 62.0, 70.001),
        _row(HOSTILE, 61.0, 69.0),
        ("[1cm]", None, None, Measure(1.0, None, 1), None, 1),
        ("* star", Measure(65.0, 1.0, 2), None, None, None, 2),
    ),
    facts=(("split", "test"), ("dataset", HOSTILE), ("seeds", "1, 2, 3")),
    notes=("‡ fewer than 3 seeds.", HOSTILE),
    summary=f"Accuracy in %, {HOSTILE}.",
)
"""Two settings of which the second has a tie; rows with fewer seeds; a published column that must not be ranked."""
