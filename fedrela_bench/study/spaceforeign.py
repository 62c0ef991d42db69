"""Search spaces written for other tools: recognised, and answered with the same space in our form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedrela_bench.nested import Json

LOG_KINDS = ("log_uniform_values", "loguniform", "qloguniform", "log_uniform", "log")
WANDB_TOP = ("method", "metric", "program", "early_terminate", "run_cap")
OPENVINO_TOP = ("hp_space", "search_algorithm", "search_alg")
OPTUNA_KINDS = ("FloatDistribution", "IntDistribution", "CategoricalDistribution")


def foreign_faults(values: Any) -> list[str]:
    """What to write instead, when this is another tool's file; nothing when it may be ours.

    Args:
        values: the file's content.
    """
    answers = (recognise(values) for recognise in (_ludwig, _openvino, _wandb, _optuna))
    found = next((answer for answer in answers if answer is not None), None)
    if found is None:
        return []
    tool, parameters, where = found
    lines = [f"this is a search space for {tool}; here `parameters` maps dotted fields to ranges and `trials` counts"]
    for name, form in parameters.items():
        ours = _ours(form) if isinstance(form, Mapping) else None
        shown = ours or "{choice: [a, b]} or {uniform|loguniform|int: [low, high]}"
        lines.append(f"{where}{name} = {_short(form)}: write {_field(name)}: {shown}")
    return lines


def _ludwig(values: Any) -> tuple[str, Json, str] | None:
    block = values.get("hyperopt") if isinstance(values, Mapping) else None
    return ("Ludwig", _mapping(block, "parameters"), "hyperopt.parameters.") if isinstance(block, Mapping) else None


def _openvino(values: Any) -> tuple[str, Json, str] | None:
    if isinstance(values, Mapping) and any(key in values for key in OPENVINO_TOP):
        return "OpenVINO", _mapping(values, "hp_space"), "hp_space."
    return None


def _wandb(values: Any) -> tuple[str, Json, str] | None:
    if not isinstance(values, Mapping):
        return None
    parameters = _mapping(values, "parameters")
    forms = [form for form in parameters.values() if isinstance(form, Mapping)]
    telling = any({"values", "min", "max", "distribution"} & set(form) for form in forms)
    if telling or ("parameters" in values and any(key in values for key in WANDB_TOP)):
        return "Weights & Biases", parameters, "parameters."
    return None


def _optuna(values: Any) -> tuple[str, Json, str] | None:
    if not isinstance(values, Mapping):
        return None
    nested = _mapping(values, "parameters") or _mapping(values, "search_space") or dict(values)
    forms = {name: form for name, form in nested.items() if isinstance(form, Mapping)}
    if any(form.get("name") in OPTUNA_KINDS or "high" in form for form in forms.values()):
        return "Optuna", {name: {**form, **_mapping(form, "attributes")} for name, form in forms.items()}, ""
    return None


def _mapping(values: Any, name: str) -> Json:
    block = values.get(name) if isinstance(values, Mapping) else None
    return {str(key): value for key, value in block.items()} if isinstance(block, Mapping) else {}


def _ours(form: Mapping[str, Any]) -> str | None:
    """A range in our words, from whatever words it came in."""
    choices = next((form[key] for key in ("values", "categories", "choices") if isinstance(form.get(key), list)), None)
    if choices is not None:
        return f"{{choice: [{', '.join(map(str, choices))}]}}"
    ends = list(_ends(form))
    if len(ends) < 2:
        return None
    kinds = (form[key] for key in ("distribution", "space", "param_type", "name") if form.get(key))
    kind = str(next(kinds, "")).lower()
    low, high, *step = ends
    logarithmic = kind in LOG_KINDS or form.get("log") is True
    whole = "int" in kind or (not logarithmic and all(isinstance(end, int) for end in ends))
    name = "loguniform" if logarithmic else "int" if whole else "uniform"
    steps = f", step: {step[0]}" if step and not logarithmic else ""
    return f"{{{name}: [{low}, {high}]{steps}}}"


def _ends(form: Mapping[str, Any]) -> Iterator[Any]:
    """Low, high and, where there is one, the step."""
    if isinstance(form.get("range"), list):
        yield from form["range"]
        return
    for names in (("min", "low", "lower"), ("max", "high", "upper"), ("q", "step")):
        value = next((form[name] for name in names if form.get(name) is not None), None)
        if value is not None:
            yield value


def _field(name: str) -> str:
    """The field that such a name most likely means."""
    from fedrela_bench.config import field_names

    last = name.rsplit(".", 1)[-1].lower()
    alias = {"learning_rate": "lr", "batchsize": "batch_size", "wd": "weight_decay"}.get(last, last)
    return next((known for known in field_names() if known.rsplit(".", 1)[-1] == alias), name)


def _short(value: Any) -> str:
    text = repr(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
