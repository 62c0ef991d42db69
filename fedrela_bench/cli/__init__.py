"""The command line: verbs, exit codes 0 (done), 1 (failed), 2 (wrong input), 130 (interrupted), 143 (terminated)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from fedrela_bench import __version__
from fedrela_bench.cli import algorithms, bench, data, doctor, gc, models, relabelers, report, run, spaces, tune
from fedrela_bench.cli.command import BenchGroup, Interrupted
from fedrela_bench.cli.common import Terminated, debugging
from fedrela_bench.errors import BenchError
from fedrela_bench.files import full_disk, unusable_path
from fedrela_bench.plugins import active, place_of

INTERRUPTED, TERMINATED = 130, 143
GROUPS = ("data", "spaces", "algorithms", "models", "relabelers")

app = typer.Typer(
    name="fedrela-bench",
    cls=BenchGroup,
    help="Federated learning under class imbalance: base algorithms with and without FedReLa.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _part in (run, tune, report, gc, data, spaces, algorithms, models, relabelers, bench, doctor):
    _part.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedrela-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of errors; goes anywhere on the line."),
) -> None:
    """`main` takes --debug out of the arguments; it stands here for --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: arguments without the program's name; by default those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    debugging.set(debug)
    arguments = [part for part in arguments if part != "--debug"]
    if not arguments or arguments in ([group] for group in GROUPS):
        arguments.append("--help")
    try:
        with _terminable():
            code = app(arguments, prog_name="fedrela-bench", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, SystemExit, KeyboardInterrupt, Interrupted, Terminated) as error:
        if isinstance(error, SystemExit) and not place_of(error):
            raise
        if debug:
            traceback.print_exc()
        return _explain(error, debug)


def _explain(error: BaseException, debug: bool) -> int:
    if isinstance(error, KeyboardInterrupt | Interrupted | typer.Abort):
        return _say("interrupted", INTERRUPTED)
    if isinstance(error, Terminated):
        return _say("terminated", TERMINATED)
    if isinstance(error, BenchError):
        return _say(str(error), error.exit_code)
    if hasattr(error, "format_message"):
        return _say(error.format_message(), 2)
    full = full_disk(error)
    if full is not None:
        return _say(f"no space is left on a disk ({full}); free some and repeat the command", 1)
    unusable = unusable_path(error)
    if unusable is not None:
        return _say(unusable, 2)
    hint = "" if debug else "; the same command with --debug shows where"
    return _say(f"unexpected {type(error).__name__}: {error}{place_of(error) or _suspects()}{hint}", 1)


def _suspects() -> str:
    """What to look at first where code of the user's own was in force and the error is not in its lines."""
    given = [plugin.title for plugin in active() if not plugin.distribution]
    if not given:
        return ""
    return f" (with --plugin {', '.join(given)}: `algorithms check NAME` shows whether it keeps the rules)"


def _say(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises, so that what is open is closed and the exit code says what happened."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
