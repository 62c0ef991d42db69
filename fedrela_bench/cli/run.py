"""`fedrela-bench run`: one simulation."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrela_bench.checks import idle_note
from fedrela_bench.cli import common, plugged
from fedrela_bench.cli.command import OverrideCommand, overrides_of
from fedrela_bench.cli.keeper import Keeper
from fedrela_bench.defaults import Resolved, to_yaml
from fedrela_bench.errors import RunError
from fedrela_bench.plugins import facts, used
from fedrela_bench.rounds import LAST, mean_of_last

if TYPE_CHECKING:
    from fedrela_bench.cli.run_folder import RunFolder
    from fedrela_bench.config import TrialConfig
    from fedrela_bench.data.federated import FederatedDataset
    from fedrela_bench.simulation import Simulation
    from fedrela_bench.simulation.metrics import RoundResult

ACCURACIES = ("overall", "head", "medium", "tail", "majority", "minority")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run", cls=OverrideCommand)(run)


def run(
    ctx: typer.Context,
    dataset: common.Dataset = None,
    algorithm: common.Algorithm = None,
    config: common.ConfigFile = None,
    profile: common.Profile = None,
    data_dir: common.DataDir = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep config, rounds and result.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of the run [1].")] = None,
    device: common.Device = "auto",
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="CPU threads.", min=1)] = 1,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="CPU processes that share the clients of a round.", min=1)
    ] = 1,
    plugin: plugged.Plugin = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")] = False,
    json_output: common.JsonOutput = False,
) -> int:
    """Run one simulation."""
    faults = common.scanned(ctx)
    place = common.attempt(faults, "cpu", lambda: common.choose_device(device))
    size, why = common.attempt(faults, common.SMALL, lambda: common.choose_size(profile, device))
    resolved = common.resolve_command(ctx, dataset, config, size, faults, algorithm, seed)
    idle = idle_note(resolved.config, overrides_of(ctx))
    common.tell(*([f"note: {idle}"] if idle else []), to_stderr=True)
    if print_config:
        common.tell(why, *resolved.notes, to_stderr=True)
        print(to_yaml(resolved.config), end="")
        return 0
    return _Run(resolved, why, place, _Cores(threads, workers), out, json_output).go(data_dir)


@dataclass(frozen=True)
class _Cores:
    threads: int
    workers: int


class _Run:
    """One call of the verb, from the images to the last table."""

    def __init__(
        self, resolved: Resolved, why: str, device: str, cores: _Cores, out: Path | None, as_json: bool
    ) -> None:
        from fedrela_bench.cli.run_folder import RunFolder

        self.config = resolved.config
        self.size = resolved.size
        self.intro = (why, *resolved.notes)
        self.code = facts(used(self.config.model_dump(mode="json")))
        self.device, self.cores, self.as_json = device, cores, as_json
        self.folder: RunFolder | None = RunFolder(out, self.config) if out is not None else None
        self.started = time.perf_counter()

    def go(self, data_dir: Path | None) -> int:
        import torch

        from fedrela_bench.data import load_dataset
        from fedrela_bench.simulation import Simulation

        torch.set_num_threads(self.cores.threads)
        self.tell(*self.intro)
        dataset = load_dataset(self.config, data_dir)
        few = few_notes(self.config, dataset)
        self.tell(*common.data_summary(dataset), *(f"note: {text}" for text in few))
        notes = [*dataset.stated, *few]
        self.facts = {"dataset": dataset.name, "data_digest": dataset.digest, "data_notes": notes}
        stored = self.folder.finished(dataset.digest) if self.folder else None
        if stored is not None:
            self.tell(f"{self.folder} holds this run already")
            return self.report(stored)
        with Simulation(self.config, dataset, self.device, self.cores.workers) as simulation:
            return self.simulate(simulation)

    def simulate(self, simulation: Simulation) -> int:
        earlier = self.folder.resume(simulation) if self.folder else []
        if earlier:
            self.tell(f"continuing after round {simulation.completed_rounds} from {self.folder}")
        keeper = Keeper(self.folder, simulation)
        try:
            # What code of the user's own prints is for people; stdout is for the numbers.
            with contextlib.redirect_stdout(sys.stderr if self.as_json else sys.stdout):
                results = self.rounds(simulation, keeper)
            summary = self.finish(simulation, keeper, [*earlier, *map(_line_of, results)], results)
        except (KeyboardInterrupt, common.Terminated):
            common.tell(
                f"\n{keeper.stopped()}",
                *([f"continue: {plugged.command_line()}"] if self.folder else []),
                to_stderr=True,
            )
            raise
        return self.report(summary)

    def rounds(self, simulation: Simulation, keeper: Keeper) -> list[RoundResult]:
        results: list[RoundResult] = []
        show = _RoundLines(self.config.federation.rounds, self.as_json)
        for result in simulation:
            results.append(result)
            if self.folder is not None:
                self.folder.append(result)
            keeper.round_done()
            show(result)
        show.end()
        return results

    def finish(
        self, simulation: Simulation, keeper: Keeper, lines: list[dict[str, Any]], results: list[RoundResult]
    ) -> dict[str, Any]:
        from fedrela_bench.simulation.cost import costs

        summary = {
            "status": simulation.status,
            "rounds": simulation.completed_rounds,
            "evaluated": sum("test/overall" in line["metrics"] for line in lines),
            "metrics": final_metrics(lines),
            **self.facts,
            "profile": self.size,
            "config_seed": self.config.seed,
            "device": self.device,
            "threads": self.cores.threads,
            "workers": self.cores.workers,
            **costs(self.config, simulation.dataset, simulation.completed_rounds),
            "seconds": round(time.perf_counter() - self.started, 3),
            "versions": _versions(),
            **({"plugins": self.code} if self.code else {}),
        }
        if self.folder is not None:
            confusion = next((result.confusion for result in reversed(results) if result.confusion), {})
            if simulation.status != "diverged":
                confusion = confusion or simulation.evaluate()
                keeper.end()
            relabelled = bool(lines) and "relabel/changed" in lines[-1]["metrics"]
            self.folder.finish(summary, confusion, simulation.flow() if relabelled else None)
        return summary

    def report(self, summary: dict[str, Any]) -> int:
        if self.as_json:
            values = {**summary, "config": self.config.model_dump(mode="json"), "out": str(self.folder or "") or None}
            print(json.dumps(values), flush=True)
        else:
            self.tell(*cost_lines(summary), "", *final_table(summary["metrics"], summary.get("evaluated", LAST)))
            if self.folder is not None:
                self.tell(f"written to {self.folder}")
        if summary["status"] == "diverged":
            raise RunError(
                f"the run diverged: loss or parameters were not finite after round {summary['rounds']}; "
                "lower --training.lr or give --training.momentum a smaller value"
            )
        return 0

    def tell(self, *lines: str) -> None:
        common.tell(*lines, to_stderr=self.as_json)


def few_notes(config: TrialConfig, dataset: FederatedDataset) -> list[str]:
    """A sentence for every scored group of classes with so few test rows that single ones matter."""
    import numpy as np

    from fedrela_bench.data.testrows import few_rows
    from fedrela_bench.simulation.setup import class_groups

    counts = np.bincount(dataset.test_labels, minlength=dataset.num_classes)
    halved = config.evaluation.selection == "test_slice"
    found = few_rows(class_groups(config, dataset), counts.tolist(), halved, config.data.balanced_test)
    return [group.text for group in found.values()]


class _RoundLines:
    """One line per round, on a terminal the same line again and again; and one where labels were changed."""

    def __init__(self, rounds: int, to_stderr: bool) -> None:
        self.rounds = rounds
        self.stream = sys.stderr if to_stderr else sys.stdout
        self.live = self.stream.isatty()

    def __call__(self, result: RoundResult) -> None:
        line = round_line(result, self.rounds)
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{line[:width]}", end="\n" if result.flow is not None else "", file=self.stream, flush=True)
        else:
            print(line, file=self.stream, flush=True)
        if result.flow is not None:
            changed, samples = int(result.metrics["relabel/changed"]), int(result.flow.sum())
            print(f"relabelled in round {result.round}: {changed} of {samples} samples", file=self.stream, flush=True)

    def end(self) -> None:
        if self.live:
            print(file=self.stream)


def round_line(result: RoundResult, rounds: int) -> str:
    """A round in about 80 columns, accuracies in percent."""
    metrics = result.metrics
    loss = f"loss {metrics['train/loss']:.3f}" if "train/loss" in metrics else "loss –"
    parts = [f"round {result.round:>{len(str(rounds))}}/{rounds}", loss]
    parts += [f"{name} {100 * metrics[f'test/{name}']:.1f}" for name in ACCURACIES if f"test/{name}" in metrics]
    if result.status == "diverged":
        parts.append("diverged")
    return "  ".join([*parts, f"{result.seconds:.1f} s"])


def final_metrics(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Round rule (`last`, `last5`: mean of the last five evaluated rounds) to metric to value, as fractions."""
    metrics = [line["metrics"] for line in lines]
    return {"last5": mean_of_last(metrics), "last": mean_of_last(metrics, last=1)}


def final_table(metrics: dict[str, dict[str, float]], evaluated: int) -> list[str]:
    """The final numbers by round rule, in percent; a group without classes is absent.

    Args:
        metrics: from `final_metrics`.
        evaluated: how many rounds were.
    """
    columns = [name for name in ACCURACIES if f"test/{name}" in metrics.get("last", {})]
    if not columns:
        return ["no round was evaluated"]
    lines = [f"{'accuracy in %, test':<30}" + "".join(f"{name:>10}" for name in columns)]
    for rule, label in (("last5", f"mean of last {min(LAST, evaluated)} evaluated"), ("last", "last evaluated round")):
        lines.append(f"{label:<30}" + "".join(f"{100 * metrics[rule][f'test/{name}']:>10.2f}" for name in columns))
    return lines


def cost_lines(summary: dict[str, Any]) -> list[str]:
    """What a run sent and, with privacy on, what it guarantees; nothing that an older record does not say."""
    from fedrela_bench.tracking.payload import guarantee

    sent, lines = summary.get("communication", {}), []
    if "total_down" in sent:
        each = f"{sent['down']:,} floats down, {sent['up']:,} up per participant and round"
        lines += [f"sent: {each};", f"      {sent['total_down']:,} down, {sent['total_up']:,} up in the run"]
    if "privacy" in summary:
        lines += textwrap.wrap(f"privacy: {guarantee(summary['privacy'])}", 80, subsequent_indent="         ")
    return lines


def _line_of(result: RoundResult) -> dict[str, Any]:
    return {"round": result.round, "metrics": result.metrics}


def _versions() -> dict[str, str]:
    import torch

    from fedrela_bench import __version__
    from fedrela_bench.simulation import SIMULATION_VERSION

    return {"fedrela_bench": __version__, "torch": torch.__version__, "simulation": SIMULATION_VERSION}
