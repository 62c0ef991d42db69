"""Reading search-space files: every fault in one message, before anything is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.config import FREE_FIELDS, TrialConfig, field_names
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import Json
from fedrela_bench.plugins import space_of
from fedrela_bench.study.spacefind import find_space
from fedrela_bench.study.spaceforeign import foreign_faults
from fedrela_bench.study.spacewhen import conditions, ordered

if TYPE_CHECKING:
    from fedrela_bench.study.space import Parameter, Space

KINDS = ("choice", "uniform", "loguniform", "int")
TOP = ("algorithm", "parameters", "seeds", "trials", "objectives", "fixed")
SYNONYMS = {"objective": "objectives", "budget": "trials"}
OBJECTIVES = ("overall", "head", "medium", "tail", "majority", "minority")
OPTIONS = "federation.options."
MOST_SEEDS = 100
"""Every configuration runs once for each."""
SEED_END = 2**32
REFUSED = {
    "relabel.options": "has a parameter for every option, such as relabel.options.match",
    "relabel.schedule_options": "has a parameter for every option, such as relabel.schedule_options.first",
    "seed": "is averaged over; list the seeds under `seeds`",
    "federation.algorithm": "is chosen under `algorithm`, which also brings the algorithm's own defaults",
    "federation.clients": "changes the data of every client; run one study for each number of clients",
    "federation.rounds": "makes trials of unequal length; run one study for each number of rounds",
}


def load_space(name_or_path: str | Path, fallback: bool = True) -> Space:
    """Find, read and check a search space.

    Args:
        name_or_path: as in `find_space`.
        fallback: as in `find_space`.

    Raises:
        ConfigError: there is no such space, or every fault of its file in one message.
    """
    from fedrela_bench.yaml_io import load_mapping

    own = space_of(str(name_or_path))
    if own is not None:
        return _of_plugin(str(name_or_path), own)
    path = find_space(name_or_path, fallback)
    document = load_mapping(path, "a search space")
    return parse_space(document.value, name=path.stem, path=str(path), header=_header(path.read_text(encoding="utf-8")))


def _of_plugin(name: str, parameters: Mapping[str, Any]) -> Space:
    """The space of an algorithm that brings its own; options may stand there by their bare names."""
    full = {key if "." in str(key) else f"{OPTIONS}{key}": form for key, form in parameters.items()}
    listed = {key: _lists(form) for key, form in full.items()}
    return parse_space({"algorithm": [name], "parameters": listed}, name, f"search_space of {name}")


def _lists(form: Any) -> Any:
    """A range of a Python mapping as a file has it."""
    if not isinstance(form, Mapping):
        return form
    return {key: list(value) if isinstance(value, tuple) else value for key, value in form.items()}


def _header(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def parse_space(values: Any, name: str = "space", path: str = "", header: str = "") -> Space:
    """Check the content of a space file.

    Args:
        values: the file's mapping: ``algorithm``, ``parameters``, and optionally ``seeds``, ``trials``, ``objectives``
            and ``fixed``.
        name: of the space.
        path: where it stands, for messages.
        header: its comment.

    Raises:
        ConfigError: every fault in one message.
    """
    from fedrela_bench.study.space import Space

    where = path or name
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: a search space is a mapping with `algorithm` and `parameters`")
    foreign = foreign_faults(values)
    if foreign:
        raise ConfigError([f"{where}: {fault}" for fault in foreign])
    faults = [unknown_name("key", str(key), str(key), TOP) for key in values if key not in (*TOP, *SYNONYMS)]
    for synonym, meant in SYNONYMS.items():
        if synonym in values and meant in values:
            faults.append(f"{synonym} and {meant} say the same; keep {meant}")
    values = {**{SYNONYMS[key]: value for key, value in values.items() if key in SYNONYMS}, **values}
    space = Space(
        name=name,
        algorithms=_algorithms(values.get("algorithm"), faults),
        parameters=ordered(_parameters(values.get("parameters"), faults), faults),
        seeds=_seeds(values.get("seeds", 1), faults),
        trials=_positive("trials", values.get("trials", 20), faults),
        objectives=_objectives(values.get("objectives"), faults),
        fixed=_fixed(values.get("fixed") or {}, faults),
        path=path,
        header=header,
    )
    if faults:
        raise ConfigError([f"{where}: {fault}" for fault in faults])
    return space


def _algorithms(value: Any, faults: list[str]) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, Mapping) and set(names) == {"choice"}:
        names = names["choice"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        faults.append("algorithm must be a name or a list of names, such as [fedavg, fedetf]")
        return ()
    return tuple(dict.fromkeys(names))


def _seeds(value: Any, faults: list[str]) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return tuple(range(1, value + 1))
    listed = value if isinstance(value, list) else []
    if 0 < len(listed) <= MOST_SEEDS and all(map(_is_seed, listed)):
        return tuple(dict.fromkeys(listed))
    faults.append(
        f"seeds = {repr(value)[:80]}: give how many (3 means 1, 2, 3) or a list of whole numbers below 2**32, "
        f"{MOST_SEEDS} at most"
    )
    return ()


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SEED_END


def _positive(name: str, value: Any, faults: list[str]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    faults.append(f"{name} = {value!r} must be a whole number of at least 1")
    return 1


def _objectives(value: Any, faults: list[str]) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        faults.append(f"objectives = {value!r}: list one or several of {', '.join(OBJECTIVES)}")
        return None
    faults += [unknown_name("objective", str(name), str(name), OBJECTIVES) for name in names if name not in OBJECTIVES]
    return tuple(dict.fromkeys(names))


def _fixed(value: Any, faults: list[str]) -> Json:
    if not isinstance(value, Mapping):
        faults.append("fixed must map dotted fields to values, such as {training.lr: 0.01}")
        return {}
    settings = {str(name): setting for name, setting in value.items()}
    for name, setting in settings.items():
        faults += _name_faults(name) or _value_faults(name, setting)
    return settings


def _parameters(value: Any, faults: list[str]) -> list[Parameter]:
    if not isinstance(value, Mapping) or not value:
        faults.append(
            "parameters must map dotted fields to ranges, such as {relabel.tau: {uniform: [0.01, 0.2, 0.01]}}"
        )
        return []
    parameters = []
    for name, form in value.items():
        wrong = _name_faults(str(name)) or _refused(str(name))
        parameter = _parameter(str(name), form, wrong)
        if parameter is not None and not wrong:
            wrong += _range_faults(parameter)
            parameters.append(parameter)
        faults += wrong
    return parameters


def _name_faults(name: str) -> list[str]:
    known = field_names()
    if name in known or name.startswith(FREE_FIELDS):
        return []
    return [unknown_name("field", name, name, known)]


def _refused(name: str) -> list[str]:
    section = name.split(".", 1)[0]
    if section in ("data", "evaluation"):
        return [f"{name} cannot be searched: it changes what is measured; set it under `fixed` or on the command line"]
    return [f"{name} {REFUSED[name]}"] if name in REFUSED else []


def _parameter(name: str, form: Any, faults: list[str]) -> Parameter | None:
    kinds = [key for key in form if key in KINDS] if isinstance(form, Mapping) else []
    if len(kinds) != 1 or any(key not in (*KINDS, "step", "when") for key in form):
        faults.append(
            f"{name} = {form!r}: write one of choice: [a, b], uniform|loguniform|int: [low, high] with step: s; and "
            "when: {other.field: value} where it shall be searched only then"
        )
        return None
    found = _kind(name, kinds[0], form, faults)
    return found and replace(found, when=conditions(name, form.get("when"), faults))


def _kind(name: str, kind: str, form: Any, faults: list[str]) -> Parameter | None:
    from fedrela_bench.study.space import Parameter

    body = form[kind]
    if kind == "choice":
        return Parameter(name, "choice", _choices(name, body, faults))
    numbers = [*body, form["step"]] if isinstance(body, list) and "step" in form else body
    if not _numeric(numbers) or len(numbers) not in (2, 3):
        faults.append(f"{name}: {kind} needs [low, high] and optionally a step, all finite numbers; got {numbers!r}")
        return None
    return _range(name, kind, list(numbers), faults)


def _choices(name: str, body: Any, faults: list[str]) -> tuple[Any, ...]:
    if not isinstance(body, list) or not body:
        faults.append(f"{name}: choice needs a list with at least one value; got {body!r}")
        return ()
    if not all(value is None or isinstance(value, str | int | float | bool) for value in body):
        faults.append(f"{name}: a choice is a number, text or null; nested choices are not possible; got {body!r}")
        return ()
    return tuple(body)


def _numeric(values: Any) -> bool:
    return isinstance(values, Sequence) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        for value in values
    )


def _range(name: str, kind: str, numbers: list[Any], faults: list[str]) -> Parameter | None:
    from fedrela_bench.study.space import MAX_ENUMERATED, Parameter

    low, high, step = (*numbers, None)[:3]
    before = len(faults)
    if low >= high:
        faults.append(f"{name}: low {low} is not below high {high}; write [low, high]")
    if kind == "loguniform" and low <= 0:
        faults.append(f"{name}: loguniform needs a low bound above 0; got {low}")
    if kind == "loguniform" and step is not None:
        faults.append(f"{name}: loguniform has no step; use choice for a logarithmic grid")
    if step is not None and (step <= 0 or step > high - low):
        faults.append(f"{name}: step {step} must be above 0 and at most high - low = {high - low:g}")
    if kind == "int" and any(int(value) != value for value in numbers):
        faults.append(f"{name}: int needs whole numbers; got {numbers}")
    if len(faults) == before and (kind == "int" or step) and high - low > (step or 1) * MAX_ENUMERATED:
        faults.append(f"{name}: steps of {step or 1} give more than {MAX_ENUMERATED} values; write a larger step")
    if len(faults) > before:
        return None
    if kind == "int":
        return Parameter(name, "int", (int(low), int(high)), int(step or 1))
    return Parameter(name, "uniform" if kind == "uniform" else "loguniform", (float(low), float(high)), step)


def _range_faults(parameter: Parameter) -> list[str]:
    grid = parameter.grid()
    if parameter.name == "relabel.start" and grid is None:
        return [
            "relabel.start needs a step, such as uniform: [0.5, 0.9, 0.1]: trials fork from snapshots of the base run"
        ]
    tested = parameter.values if parameter.kind == "choice" or grid is None else (grid[0], grid[-1])
    return [fault for value in dict.fromkeys(tested) for fault in _value_faults(parameter.name, value)]


def _value_faults(name: str, value: Any) -> list[str]:
    try:
        TrialConfig().replace({name: value})
    except ConfigError as error:
        return error.faults
    return []
