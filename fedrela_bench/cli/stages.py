"""Options of `tune` that choose stages and their budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrela_bench.cli.common import attempt

if TYPE_CHECKING:
    from fedrela_bench.study.controls import Control
    from fedrela_bench.study.futility import Futility

Opt = typer.Option
Stage = Annotated[
    list[str] | None,
    Opt("--stage", metavar="LIST", help="Of trunks, search, confirm, report [all]; or base: no relabelling at all."),
]
ConfirmSeeds = Annotated[str | None, Opt("--confirm-seeds", metavar="N|LIST", help="Of the confirm stage [--seeds].")]
ConfirmTop = Annotated[
    int | None, Opt("--confirm-top", metavar="N", help="Configurations of each algorithm to confirm [3].")
]
LrDrop = Annotated[
    float | None, Opt("--lr-drop", metavar="F", help="Also confirm with the learning rate times F from T on.")
]
ControlArm = Annotated[
    str | None,
    Opt("--control", metavar="NAME", help="Also confirm with this relabeler, such as random or random,match=flow."),
]
Race = Annotated[bool, Opt("--race", help="One seed for all, three for the best third, all for their front.")]
FutilityRule = Annotated[
    str | None, Opt("--futility", metavar="K,D", help="Stop a run gaining less than D, K rounds after its fork.")
]
MaxFailures = Annotated[int, Opt("--max-failures", metavar="N", help="Failed configurations before exit code 1.")]
OptunaStorage = Annotated[
    str | None, Opt("--optuna-storage", metavar="URL", help="sqlite:/// or postgresql:// [a journal in the study].")
]
LogModels = Annotated[
    str, Opt("--log-models", metavar="best|none", help="Whose models MLflow gets, to load and to serve.")
]
SnapshotRounds = Annotated[
    int | None, Opt("--snapshot-rounds", metavar="N", help="A kill repeats at most N rounds [those of a minute].")
]


AS_GIVEN = ("confirm_top", "lr_drop", "race", "max_failures", "optuna_storage", "log_models")


def budgets(
    options: Mapping[str, Any], parse_seeds: Callable[[str, str], tuple[int, ...]], faults: list[str]
) -> dict[str, Any]:
    """What these options mean in a request; what is wrong with them goes to `faults`.

    Args:
        options: of the command line.
        parse_seeds: reads a number or a list of seeds, and the option's name for its messages.
        faults: takes one sentence for each.
    """
    seeds, rule, control = options["confirm_seeds"], options["futility"], options["control"]
    return {
        "stages": parse_stages(options["stage"]),
        "confirm_seeds": attempt(
            faults, None, lambda: None if seeds is None else parse_seeds(seeds, "--confirm-seeds")
        ),
        "futility": attempt(faults, None, lambda: parse_futility(rule)),
        "control": attempt(faults, None, lambda: parse_control(control)),
        "rolling_rounds": options["snapshot_rounds"],
        **{name: options[name] for name in AS_GIVEN},
    }


def parse_stages(stages: Sequence[str] | None) -> tuple[str, ...]:
    """``--stage trunks,search`` or one option for each; all of them where none is given."""
    from fedrela_bench.study.request import STAGES

    if not stages:
        return STAGES
    listed = [part.strip() for item in stages for part in item.split(",") if part.strip()]
    return tuple(dict.fromkeys(listed))


def parse_futility(text: str | None) -> Futility | None:
    """``k,delta``.

    Raises:
        ConfigError: anything else.
    """
    from fedrela_bench.study.futility import Futility

    return None if text is None else Futility.parse(text)


def parse_control(text: str | None) -> Control | None:
    """``NAME`` or ``NAME,OPTION=VALUE``.

    Raises:
        ConfigError: no such relabeler, or wrong options.
    """
    from fedrela_bench.study.controls import Control

    return None if text is None else Control.parse(text)
