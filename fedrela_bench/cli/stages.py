"""Options of `tune` that choose stages and their budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedrela_bench.study.futility import Futility

Opt = typer.Option
Stage = Annotated[
    list[str] | None,
    Opt("--stage", metavar="LIST", help="Of trunks, search, confirm, report [all]; or base: no relabelling at all."),
]
ConfirmSeeds = Annotated[str | None, Opt("--confirm-seeds", metavar="N|LIST", help="Of the confirm stage [--seeds].")]
ConfirmTop = Annotated[int, Opt("--confirm-top", metavar="N", help="Configurations of each algorithm to confirm.")]
LrDrop = Annotated[
    float | None, Opt("--lr-drop", metavar="F", help="Also confirm: rate times F from T on, no relabelling.")
]
Race = Annotated[bool, Opt("--race", help="One seed for all, three for the best third, all for their front.")]
FutilityRule = Annotated[
    str | None, Opt("--futility", metavar="K,D", help="Stop a run gaining less than D, K rounds after its fork.")
]
MaxFailures = Annotated[int, Opt("--max-failures", metavar="N", help="Failed configurations before exit code 1.")]
OptunaStorage = Annotated[
    str | None, Opt("--optuna-storage", metavar="URL", help="sqlite:/// or postgresql:// [a journal in the study].")
]
SnapshotRounds = Annotated[
    int | None, Opt("--snapshot-rounds", metavar="N", help="A kill repeats at most N rounds [those of a minute].")
]


def parse_stages(stages: list[str] | None) -> tuple[str, ...]:
    """``--stage trunks,search`` or one option for each; all of them where none is given."""
    from fedrela_bench.study.request import STAGES

    if stages is None:
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
