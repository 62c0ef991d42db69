"""`fedrela-bench doctor`: what this machine has, what is wrong with it, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedrela_bench import __version__
from fedrela_bench.cli.command import BenchCommand
from fedrela_bench.cli.common import DataDir, JsonOutput, tell
from fedrela_bench.cli.findings import Finding, lines_of, summary
from fedrela_bench.stacks import screen

Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where studies shall be kept [studies].")]
Store = Annotated[Path | None, typer.Option("--store", metavar="DIR", help="Where computed runs shall be kept.")]
Ray = Annotated[str | None, typer.Option("--ray-address", metavar="ADDR", help="A Ray cluster to try [RAY_ADDRESS].")]
Uri = Annotated[str | None, typer.Option("--tracking-uri", metavar="URI", help="An MLflow store to try.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", cls=BenchCommand)(doctor)


def doctor(
    out: Out = None,
    store: Store = None,
    ray_address: Ray = None,
    tracking_uri: Uri = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> int:
    """Versions, processors, memory, folders, services and datasets, each with its remedy: doctor --json.

    Nothing is started, downloaded or written. Exit code 1 where something makes runs impossible.
    """
    from fedrela_bench.cli.machine import machine, software
    from fedrela_bench.cli.surroundings import datasets, folders, services

    findings = [
        *software(),
        *machine(),
        *folders(out, store),
        *services(ray_address, tracking_uri, out),
        *datasets(data_dir),
    ]
    failed = any(finding.status == "fail" for finding in findings)
    _tell(findings, failed, json_output)
    return int(failed)


def _tell(findings: Sequence[Finding], failed: bool, as_json: bool) -> None:
    if as_json:
        listed = [{**asdict(finding), "remedy": finding.remedy or None} for finding in findings]
        tell(json.dumps({"version": __version__, "ok": not failed, "findings": listed}))
        return
    width, coloured = screen()
    tell(f"fedrela-bench {__version__}: {summary(findings)}", *lines_of(findings, width, coloured))
