"""YAML 1.2 scalars, faults with their lines, and text that reads back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrela_bench.errors import ConfigError
from fedrela_bench.yaml_io import dump_yaml, load_document, load_mapping, load_yaml, parse_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("3", 3),
        ("0x10", 16),
        ("0o17", 15),
        ("010", 10),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("off", "off"),
        ("none", "none"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("folder:/data/x y", "folder:/data/x y"),
        ("[1, 2e-3, a]", [1, 0.002, "a"]),
        ("{mu: 1e-2}", {"mu": 0.01}),
        ("'1e-4'", "1e-4"),
    ],
)
def test_scalars_are_what_they_look_like(text: str, value: Any, tmp_path: Path) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)
    file = tmp_path / "a.yaml"
    file.write_text(f"x: {text}\n")
    assert load_yaml(file) == {"x": value}


def test_not_a_number_and_infinity() -> None:
    assert math.isnan(parse_scalar(".nan"))
    assert parse_scalar("-.inf") == -math.inf
    assert parse_scalar("nan") == "nan"


def test_duplicate_keys_are_all_named_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: 1\nb: {x: 1}\na: 2\nc:\n  y: 1\n  y: 2\n")
    with pytest.raises(ConfigError) as caught:
        load_document(file)
    assert caught.value.faults == [
        f"{file}, line 3: a is given twice (first in line 1); keep one",
        f"{file}, line 6: c.y is given twice (first in line 5); keep one",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n- 2\n", ["must be a mapping", "this is a list"]),
        ("just text\n", ["must be a mapping", "this is a str"]),
        ("a: [1\nb: 2\n", ["line 2", "not valid YAML"]),
        ("a:\n\tb: 1\n", ["line 2", "not valid YAML"]),
        ("a: 1\n---\nb: 2\n", ["not valid YAML"]),
        ("a: !!python/object:os.system 1\n", ["not valid YAML"]),
    ],
)
def test_wrong_files_are_refused_with_a_place(text: str, words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_mapping(file, "a configuration")
    assert str(file) in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_yaml(tmp_path)
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_yaml(binary)


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("# nothing\n")
    assert load_mapping(file, "a configuration").value == {}


def test_places_of_nested_names(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("training:\n  lr: 1\n  momentum: 2\n")
    document = load_document(file)
    assert document.where("training.momentum") == f"{file}, line 3"
    assert document.where("training.momentum.x") == f"{file}, line 3"
    assert document.where("seed") == str(file)


def test_an_open_list_on_the_command_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_scalar("[1, 2")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text("aeE0123456789.+-~:#'\"\\{}[],&*!|> \nτé"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd_", min_size=1), inner, max_size=3),
)


@given(st.dictionaries(st.text("abcdef_", min_size=1), VALUES, max_size=4))
def test_what_is_written_reads_back_equal(value: dict[str, Any]) -> None:
    from fedrela_bench.yaml_io import _parse_document

    back = _parse_document(dump_yaml(value), None).value
    assert back == value or (not value and back == {})


@pytest.mark.parametrize("text", ["a: 1\nb: &t {x: *t}\n", "a: 1\nb: &t [1, [*t]]\n", "a: 1\nb: &t {<<: *t}\n"])
def test_a_value_that_holds_itself_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(file)
    assert caught.value.faults[0].startswith(f"{file}, line 2: ")
    assert "alias" in str(caught.value)


def test_an_alias_of_another_value_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: &t {x: [1]}\nb: *t\nc: [*t, *t]\n")
    assert load_yaml(file) == {"a": {"x": [1]}, "b": {"x": [1]}, "c": [{"x": [1]}, {"x": [1]}]}
