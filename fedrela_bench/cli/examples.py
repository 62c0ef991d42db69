"""The examples that end the help of every command: one home, so that a test can hold all of them to the options."""

from __future__ import annotations

from typing import Any

Example = tuple[str, str]
"""A command line without the program's name, and what it is for."""

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "": (
        ("tune --dataset digits_lt", "the main job: baselines, search, table, report"),
        ("run --dataset digits_lt --relabel.tau 0.05", "one simulation"),
        ("report studies/digits_lt", "tables and figures of a study"),
        ("ui studies/digits_lt", "its runs in MLflow"),
    ),
    "run": (
        ("run --dataset digits_lt --relabel.tau 0.05 --out runs/one", "FedAvg with FedReLa; the same command goes on"),
        ("run --dataset digits_lt --algorithm fedprox --federation.options.mu 0.1", "another base algorithm"),
        ("run --config studies/digits_lt/best/balanced.yaml", "what a study found"),
        ("run --dataset cifar100_lt --print-config", "every field and its value"),
    ),
    "tune": (
        ("tune --dataset digits_lt", "about two minutes on two cores"),
        ("tune --dataset digits_lt --trials 30", "the same study goes on"),
        ("tune --dataset cifar100_lt --data-dir data --dry-run", "full runs, disk and hours"),
        ("tune --dataset digits_lt --confirm-seeds 5 --lr-drop 0.1", "more seeds, and the control of the rate drop"),
        ("tune --dataset digits_lt --stage base --algorithm fedprox", "a base algorithm's own options"),
    ),
    "report": (
        ("report studies/digits_lt", "a study: baselines, Pareto front, the paper's default"),
        ("report studies/digits_lt --spec sensitivity", "the same study by another spec"),
        ("report --list", "the specs that come with the package"),
        ("report paper_table2 --plan", "the runs of the paper's Table 2: there, missing, cost"),
        ("report paper_table2 --run --seeds 1", "compute what is missing, then show the table"),
        ("report paper_table2 --stacked", "the table again, settings below each other"),
        ("report paper_table2 --published", "the published numbers alone"),
    ),
    "ui": (("ui studies/digits_lt --port 5001", "MLflow's UI, where port 5000 is taken"),),
    "sync": (("sync studies/digits_lt", "after the tracking server was away"),),
    "gc": (
        ("gc studies/digits_lt", "what could be freed"),
        ("gc studies/digits_lt --yes", "free it"),
    ),
    "data": (("data show --dataset digits_lt --out clients.png", "counts, groups, client x class map"),),
    "data show": (
        ("data show --dataset digits_lt --out clients.png", "as clients see it"),
        (
            "data show --dataset table:visits.csv_natural --data.label_column diagnosis --data.client_column clinic",
            "a table with its own clients",
        ),
    ),
    "data get": (
        ("data get cifar100", "download once, for machines without network"),
        ("data get table:visits.csv --data.label_column diagnosis", "read a table ahead of time"),
    ),
    "spaces": (("spaces show digits_lt", "what tune searches there"),),
    "spaces list": (("spaces list", "names for tune --space and spaces show"),),
    "spaces show": (("spaces show fedprox", "parameters, seeds, trials"),),
    "spaces check": (
        ("spaces check my_space.yaml", "one's own, before anything is computed"),
        ("spaces check", "all that come with the package"),
    ),
    "algorithms": (("algorithms show fedprox", "options, state, messages"),),
    "algorithms list": (("algorithms list", "names for --algorithm"),),
    "algorithms show": (
        ("algorithms show fedprox", "options with defaults and ranges"),
        ("algorithms show scaffold --dataset cifar100_lt --profile paper", "state and messages at published size"),
    ),
    "algorithms check": (("algorithms check mine --plugin mine.py", "the rules that every algorithm keeps"),),
    "models": (("models list", "names for --training.model"),),
    "models list": (("models list --input 1x28x28", "parameters and features for such images"),),
    "models check": (("models check mine --plugin nets.py --input 1x28x28", "the rules that every model keeps"),),
    "relabelers": (("relabelers show random", "the control that relabels at random"),),
    "relabelers list": (("relabelers list", "names for --relabel.method and --relabel.schedule"),),
    "relabelers show": (("relabelers show random", "options with defaults and ranges"),),
    "bench": (
        ("bench --short", "a minute"),
        ("bench fm --workers 1,2", "two worker processes beside one"),
        ("bench fm --check benchmarks/baseline.json", "exit code 1 when slower than the baseline"),
    ),
    "doctor": (("doctor --data-dir data", "versions, processors, GPUs, datasets found"),),
}
"""Path of a command to its examples."""


def write_examples(path: str, formatter: Any) -> None:
    """Add the section to a help text.

    Args:
        path: of the command with the program's name, such as ``fedrela-bench data show``.
        formatter: click's.
    """
    given = EXAMPLES.get(path.partition(" ")[2], ())
    if given:
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for line, purpose in given:
                # Not wrapped: a command is to be copied as one line.
                formatter.write(f"{indent}fedrela-bench {line}\n{indent}    {purpose}\n")
