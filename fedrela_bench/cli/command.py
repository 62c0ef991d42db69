"""Command lines with dotted overrides: ``--training.lr 0.01`` or ``--training.lr=0.01`` beside the named options."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fedrela_bench.cli import plugged
from fedrela_bench.cli.examples import write_examples
from fedrela_bench.config import FREE_FIELDS, field_names
from fedrela_bench.defaults import unknown_field
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name

OVERRIDES, FAULTS = "fedrela_bench.overrides", "fedrela_bench.faults"


class Interrupted(BaseException):
    """SIGINT arrived while a verb ran."""


class BenchGroup(TyperGroup):
    """Verbs; an unknown one is refused with the nearest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that the first argument names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise ConfigError(unknown_name("command", args[0], args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """End the help with examples."""
        write_examples(ctx.command_path, formatter)


class BenchCommand(TyperCommand):
    """Refuses what click lets pass: options given twice, options that do not exist (with the nearest one)."""

    takes_overrides = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the dotted overrides out of the arguments and leave the rest to click."""
        scan = _Scan(ctx, self, self.takes_overrides)
        scan.read(args)
        ctx.meta[OVERRIDES], ctx.meta[FAULTS] = scan.overrides, scan.faults
        try:
            return super().parse_args(ctx, scan.rest)
        except Exception as error:
            if scan.faults and hasattr(error, "format_message"):
                raise ConfigError([*scan.faults, error.format_message()]) from None
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, unless its line has faults; a verb with overrides joins them to those it finds itself."""
        faults: list[str] = ctx.meta[FAULTS]
        if plugged.PARAMETER in ctx.params:
            try:
                plugged.load(ctx.params[plugged.PARAMETER] or ())
            except ConfigError as error:
                raise ConfigError([*faults, *error.faults]) from None
        if faults and not self.takes_overrides:
            raise ConfigError(list(dict.fromkeys(faults)))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Typer would make an exit code of it without a word.
            raise Interrupted from None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """End the help with examples."""
        write_examples(ctx.command_path, formatter)


class OverrideCommand(BenchCommand):
    """A verb that takes dotted overrides of the configuration."""

    takes_overrides = True

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, and that every field of the configuration can be set."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Dotted overrides"):
            formatter.write_text(
                "Every field of the configuration can be given, such as --training.lr 0.01 or --relabel.tau=0.05. They "
                "win over named options, these over --config, that over the dataset's defaults. All names: "
                "run --print-config."
            )


def overrides_of(ctx: typer.Context) -> dict[str, Any]:
    """The dotted overrides of the command being run."""
    found: dict[str, Any] = ctx.meta.get(OVERRIDES, {})
    return found


def faults_of_line(ctx: typer.Context) -> list[str]:
    """What is wrong with the spelling of the command being run."""
    found: list[str] = ctx.meta.get(FAULTS, [])
    return found


class _Scan:
    """One pass over the arguments of a verb."""

    def __init__(self, ctx: Any, command: TyperCommand, dotted: bool) -> None:
        self.ctx = ctx
        options: list[Any] = [param for param in command.params if param.param_type_name == "option"]
        self.options = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
        self.takes_arguments = len(options) < len(command.params)
        self.names = field_names() if dotted else []
        self.overrides: dict[str, Any] = {}
        self.rest: list[str] = []
        self.faults: list[str] = []
        self._given: set[str] = set()

    def read(self, args: Sequence[str]) -> None:
        """Sort every argument into overrides, click's own, and faults."""
        tokens = list(args)
        while tokens:
            token = tokens.pop(0)
            if token == "--":
                self.rest += [token, *tokens]
                return
            name, equals, value = token.partition("=")
            if not token.startswith("--") and not self.takes_arguments:
                self.faults.append(f"unexpected extra argument {token!r}; options are written --NAME VALUE")
            elif not token.startswith("--") or name == "--help":
                self.rest.append(token)
            elif name in self.options:
                self._known(name, token, bool(equals), tokens)
            elif self.names and "." in name:
                self._override(name[2:], value if equals else None, tokens)
            else:
                self._unknown(name)
                if not equals and tokens and not tokens[0].startswith("-"):
                    tokens.pop(0)

    def _known(self, name: str, token: str, has_value: bool, tokens: list[str]) -> None:
        option = self.options[name]
        if not option.multiple and option.name in self._given:
            self.faults.append(f"{name} is given twice; keep one")
        self._given.add(str(option.name))
        if option.is_flag:
            self.rest.append(token)
        elif not has_value and (not tokens or tokens[0].startswith("--")):
            self.faults.append(f"{name} has no value; write {name} {option.metavar or 'VALUE'}")
        else:
            value = token.partition("=")[2] if has_value else tokens.pop(0)
            fault = _value_fault(self.ctx, name, value, option)
            self.faults += [fault] if fault else []
            self.rest += [] if fault else [name, value]

    def _override(self, dotted: str, value: str | None, tokens: list[str]) -> None:
        if value is None and tokens and not tokens[0].startswith("--"):
            value = tokens.pop(0)
        if dotted not in self.names and not dotted.startswith(FREE_FIELDS):
            self.faults.append(unknown_field(f"--{dotted}", dotted, self.names))
        elif not value:
            self.faults.append(f"--{dotted} has no value; write --{dotted} VALUE")
        elif dotted in self._given:
            self.faults.append(f"--{dotted} is given twice; keep one")
        else:
            self._given.add(dotted)
            self._read_value(dotted, value)

    def _read_value(self, dotted: str, text: str) -> None:
        from fedrela_bench.yaml_io import parse_scalar

        try:
            self.overrides[dotted] = parse_scalar(text)
        except ConfigError as error:
            self.faults += [f"--{dotted}: {fault}" for fault in error.faults]

    def _unknown(self, name: str) -> None:
        near = next(self._nearest(name[2:].replace("_", "-")), None)
        hint = f"did you mean {near}?" if near else "see --help for the options"
        self.faults.append(f"unknown option {name}; {hint}")

    def _nearest(self, name: str) -> Iterator[str]:
        yield from (f"--{dotted}" for dotted in self.names if dotted.rpartition(".")[2].replace("_", "-") == name)
        choices = {option[2:]: option for option in self.options if option.startswith("--")}
        choices |= {dotted.rpartition(".")[2].replace("_", "-"): f"--{dotted}" for dotted in reversed(self.names)}
        yield from (choices[found] for found in difflib.get_close_matches(name, choices, n=1, cutoff=0.6))


def _value_fault(ctx: Any, name: str, value: str, option: Any) -> str | None:
    """Why a named option refuses its value; asked here, so that one message can hold all faults."""
    if not value:
        return f"{name} has no value; write {name} {option.metavar or 'VALUE'}"
    try:
        read = option.process_value(ctx, [value] if option.multiple else value)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        reason = str(getattr(error, "message", error)).rstrip(".").removeprefix("Input ").partition(",")[0]
        return f"{name} {value}: {reason}; write {name} {option.metavar or 'VALUE'}"
    return f"{name} {value}: is not a finite number" if isinstance(read, float) and not math.isfinite(read) else None
