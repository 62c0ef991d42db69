"""`fedrela-bench models list|check`: networks for `--training.model`, one's own included."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer

from fedrela_bench.cli import common, plugged
from fedrela_bench.cli.algorithm_facts import paragraph
from fedrela_bench.cli.command import BenchCommand, BenchGroup
from fedrela_bench.cli.common import tell
from fedrela_bench.cli.verdicts import check_all, tell_verdict
from fedrela_bench.errors import ConfigError
from fedrela_bench.plugins import origin_of

Shape = tuple[int, int, int]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a model.")]
Input = Annotated[str, typer.Option("--input", metavar="CxHxW", help="Channels, height and width of the images.")]
MOST_SIDE = 4_096
SHAPE: Shape = (3, 32, 32)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(cls=BenchGroup, help="List or check models.", rich_markup_mode=None)
    group.command("list", cls=BenchCommand)(list_all)
    group.command("check", cls=BenchCommand)(check)
    app.add_typer(group, name="models")


def list_all(images: Input = "3x32x32", as_json: common.JsonOutput = False, plugin: plugged.Plugin = None) -> int:
    """Names, features and parameters (without the head) for images of one shape: models list --input 1x28x28."""
    from fedrela_bench.models import model_names

    shape = input_shape(images)
    rows = [_facts(name, shape) for name in model_names()]
    if as_json:
        tell(json.dumps({"input": list(shape), "models": rows}))
        return 0
    width = max(len(row["name"]) for row in rows) + 4
    tell(f"models for {images}:")
    for row in rows:
        tell(*paragraph(f"  {row['name']}", _described(row), width))
    return 0


def check(
    name: Name, images: Input = "3x32x32", as_json: common.JsonOutput = False, plugin: plugged.Plugin = None
) -> int:
    """Every rule for models, a short federated run included: models check mine --plugin mine.py --input 1x28x28.

    Exit code 1 where a rule is broken.
    """
    from fedrela_bench.models import build_backbone

    faults: list[str] = []
    shape = common.attempt(faults, SHAPE, lambda: input_shape(images))
    # Before the kit is imported, which registers models for itself.
    common.attempt(faults, None, lambda: build_backbone(name, shape))
    if faults:
        raise ConfigError(faults)
    from fedrela_bench.testing import NETWORK, network

    rows = check_all(NETWORK, network(name, shape), as_json)
    code = tell_verdict(rows, len(NETWORK), as_json)
    tell(*([json.dumps({"model": name, "input": images, "checks": rows})] if as_json else []))
    return code


def input_shape(text: str) -> Shape:
    """(channels, height, width) as they are typed.

    Raises:
        ConfigError: another form, or a size that no image has.
    """
    sizes = [int(part) for part in text.lower().split("x")] if re.fullmatch(r"\d{1,6}([xX]\d{1,6}){2}", text) else []
    if not sizes or not all(1 <= size <= MOST_SIDE for size in sizes):
        raise ConfigError(
            f"--input {text}: give channels x height x width, each from 1 to {MOST_SIDE}, such as 1x28x28; "
            "a table's row of 12 inputs is 1x1x12"
        )
    channels, height, width = sizes
    return channels, height, width


def _facts(name: str, shape: Shape) -> dict[str, Any]:
    """Sizes of a backbone; where it cannot be built for such images, why."""
    from fedrela_bench.models import build_backbone

    facts: dict[str, Any] = {"name": name, "plugin": origin_of("model", name) or None}
    try:
        backbone = build_backbone(name, shape)
    except ConfigError as error:
        return {**facts, "features": None, "parameters": None, "why_not": "; ".join(error.faults)}
    count = sum(parameter.numel() for parameter in backbone.parameters())
    return {**facts, "features": backbone.feature_dim, "parameters": count, "why_not": None}


def _described(row: dict[str, Any]) -> str:
    sizes = row["why_not"] or f"{row['parameters']:,} parameters, {row['features']:,} features"
    return sizes + (f"\nfrom plugin {row['plugin']}" if row["plugin"] else "")
