"""What is wrong with a table is named by file, row and column, all of it at once, with a remedy."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrela_bench.config import DataConfig
from fedrela_bench.data import load_dataset
from fedrela_bench.data.request import request_faults
from fedrela_bench.data.sources import delimited, limits
from fedrela_bench.data.sources.sheet import read_sheet
from fedrela_bench.errors import ConfigError, DataError
from tests.data.makers import config, visits, write_text
from tests.data.tables import read, refusal, table, trial

GOOD = "".join(f"{i},{'ab'[i % 2]},{i % 3}\n" for i in range(12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty or begins with an empty row"]),
        ("\n\nx,label\n", ["begins with an empty row"]),
        ("x,label\n", ["has no rows"]),
        ("x,x,,label\n1,2,3,4\n", ["2 faults", "2 columns are called 'x'", "column 3 has no name", "index=False"]),
        ("x", ["has no rows"]),
        ("x, x ,label\n1,2,a\n", ["2 columns are called 'x'"]),
        (
            "x,k,label\n" + GOOD + "1,a,1e19\n1,a,2e19\n",
            ["row 14, column label is 1e+19", "write a label this long as text"],
        ),
        ("x,k,label\n" + GOOD + f"1,a,{'9' * 5000}\n", ["row 14, column label is inf"]),
        ("1,2,2\n3,4,5\n", ["first row holds numbers only"]),
        ("x,k,label\n1,2\n3,a,1\n4,5,6,7\n", ["row 2 has 2 values, the header 3", "row 4 has 4 values"]),
        ("é,label\n".encode("latin-1") + b"1,a\n", ["is not a UTF-8 table", "save it as UTF-8"]),
        (b"x,label\n1,\xff\n", ["UTF", "save it as UTF-8"]),
        ("x,label\n1,a\n".encode("utf-16"), ["UTF-16"]),
        (bytes(range(256)), ["save it as UTF-8"]),
        ("x,y\n1,2\n", ["no column is called label, target or class", "x, y", "data.label_column"]),
        ("x,label,class\n1,2,3\n", ["columns label and class could be the label"]),
        ("label\na\nb\n", ["no column is left as a feature"]),
        ("x,k,label\n" + GOOD + "abc,a,1\n", ["row 14, column x holds 'abc' among numbers", "categorical_columns"]),
        ("x,k,label\n" + GOOD + "inf,a,1\n-Infinity,b,1\n", ["row 14, column x is infinite", "(2 such rows)"]),
        ("x,k,label\n" + GOOD + "1e999,a,1\n", ["row 14, column x is infinite"]),
        ("x,k,label\n\n" + GOOD + "1,a,\n", ["row 15, column label has no label"]),
        ("x,k,label\n" + GOOD + "1,a,0.5\n", ["row 14, column label is 0.5", "not a measurement"]),
        ("x,label\n1,a\n2,a\n3,a\n", ["column label: a is the only class", "single class"]),
        ("x,label\n1,a\n2,a\n3,a\n4,b\n", ["of class b there are fewer than 2 rows", "a test split (b: row 5)"]),
        (
            "x,label,k\n" + GOOD + "1,C,1\n2,A,1\n3,d,1\n",
            ["of class A, C, d there are", "correct the label", "(A: row 15, did you mean a?; C: row 14; d: row 16)"],
        ),
        (
            "x,label,split\n" + "1,a,train\n2,b,test\n2,a,test\n1,b,train\n" * 2 + "1,B,train\n",
            ["no test row of class 0 (B, did you mean b?), which row 10 has"],
        ),
        ("x,label\n" + "".join(f"1,u{i}\n" for i in range(20)), ["20 classes in 20 rows", "data.label_column"]),
        ("x,k,label\n" + "".join(f"1,u{i},{i % 2}\n" for i in range(1001)), ["column k holds 1,001 different texts"]),
        ("x,k,label\n" + "".join(f"1,,{i % 2}\n" for i in range(4)), ["column k is empty", "data.drop_columns"]),
        ("x,label,split\n1,a,train\n2,b,fold3\n", ["row 3, column split is 'fold3'", "train, test or val"]),
        ("x,label,split\n1,a,train\n2,b,train\n", ["column split marks no test rows"]),
        (
            "x,label,split\n1,a,train\n2,b,train\n3,a,test\n",
            ["no test row of class 1 (b), which row 3 has", "in both splits"],
        ),
        (
            "x,label,split\n1,a,train\n2,a,train\n3,b,test\n4,a,test\n",
            ["no training row of class 1 (b), which row 4 has"],
        ),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    message = refusal(table(tmp_path, text))
    assert all(word in message for word in words), message


HEAD = ["x,k,label"]
LINES = [f"0.{i},{'ab'[i % 2]},{'pq'[i % 3 > 0]}" for i in range(400)]
NEVER = "row 42: a quoted value never ends; close it"


def replaced(line: str, row: int = 42, end: str = "\n", lines: list[str] = LINES) -> str:
    """A good table of 400 rows, but for one row."""
    return "\n".join([*HEAD, *lines[: row - 2], line, *lines[row - 1 :]]) + end


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (replaced('0.5,a,"p'), NEVER),
        (replaced('0.5,"a,p'), NEVER),
        (replaced('"0.5,a,p'), NEVER),
        (replaced('0.5,a,"p').replace("\n", "\r\n"), NEVER),
        (replaced('0.5,a,"p').replace(",", ";"), NEVER),
        (replaced('0.5,a,"p', row=401, end=""), NEVER.replace("42", "401")),
        (replaced('0.5,a,"', row=401, end=""), NEVER.replace("42", "401")),
        (replaced('0.5,a,"p""', row=401), NEVER.replace("42", "401")),
        # Quotes in the middle of a value are none, so that their number tells nothing.
        (replaced('0.5,5",p').replace("0.0,a", '0.0,5"') + '0.5,a,"p', NEVER.replace("42", "402")),
        (replaced("0.5,a,p").replace(HEAD[0], 'x,k,"label'), "row 1: a quoted value never ends"),
        # Where all values are quoted, the next row's first quote closes the stray one.
        (
            replaced('"0.5","a","p', lines=[f'"{line}"'.replace(",", '","') for line in LINES]),
            "row 42 has 5 values, the header 3 columns; a quoted value in it goes on over the end of its line",
        ),
        (
            replaced('0.5,a,"p', lines=[f'{line[:-1]}"{line[-1]}"' for line in LINES]),
            "row 42: a quoted value goes on over the end of its line, and text follows its closing quote",
        ),
    ],
)
def test_a_stray_quote_does_not_swallow_rows(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(table(tmp_path, text))


def test_a_stray_quote_is_told_beside_other_faults_and_in_files_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refusal(table(tmp_path, replaced("0.5,a") + '0.5,"a'))
    assert "2 faults" in message and "row 42 has 2 values" in message
    assert "row 402: a quoted value never ends; close it" in message
    # More than the parser's block, and than the longest value of Python's reader.
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1 << 16)
    many = "\n".join(LINES * 50)
    assert "row 2: a quoted value never ends" in refusal(table(tmp_path, f'{HEAD[0]}\n0.5,a,"p\n{many}'))
    assert "row 1: a quoted value never ends" in refusal(table(tmp_path, f'x,k,"label\n{many}'))


@pytest.mark.parametrize("value", ['"p\nq"', '"p ""\nq"" r"', '"p\r\nq"', '"p\n\nq"', '5"', 'p"q"', '"p"q'])
@pytest.mark.parametrize(("row", "end"), [(42, "\n"), (401, "\n"), (401, "")])
def test_quoted_values_of_several_lines_and_quotes_in_values_are_read(
    tmp_path: Path, value: str, row: int, end: str
) -> None:
    found = read_sheet(table(tmp_path, replaced(f"0.5,a,{value}", row, end)))
    assert len(found.rows) == 400
    assert found.rows.tolist() == list(range(2, 402))
    wanted = value[1:-1].replace('""', '"') if value.startswith('"') and value.endswith('"') else value
    assert found.table.column("label")[row - 2].as_py() == (wanted if value != '"p"q' else "pq")


@pytest.mark.parametrize("page", ["<!DOCTYPE html>\n<html><body>404</body></html>\n", "\n\n<HTML lang='en'>\n<p>a,b\n"])
def test_web_pages_saved_as_tables(tmp_path: Path, page: str) -> None:
    assert "a web page saved by mistake: fetch it again" in refusal(table(tmp_path, page))
    assert "a web page saved by mistake: fetch it again" in refusal(table(tmp_path, page, "t.parquet"))


def test_all_faults_of_the_values_come_together(tmp_path: Path) -> None:
    text = "x,k,label\n" + GOOD + "inf,a,1\n5,,2\n7,a,\n"
    message = refusal(table(tmp_path, text))
    assert message.startswith(f"{tmp_path / 't.csv'}: 3 faults:")
    assert "row 14, column x is infinite" in message
    assert "column k lacks 1 values (first: row 15)" in message
    assert "row 16, column label has no label" in message


def test_all_faults_of_the_settings_come_together(tmp_path: Path) -> None:
    path = table(tmp_path, "x,k,label\n" + GOOD)
    message = refusal(path, label_column="lable", drop_columns=("kk",), categorical_columns=("z",), natural=True)
    assert "4 faults" in message
    assert "data.label_column = 'lable'; did you mean label?" in message
    assert "data.drop_columns = 'kk'; did you mean k?" in message
    assert "data.partition = natural needs a column of clients" in message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"t": [datetime.datetime(2020, 1, 1)] * 4, "z": pa.nulls(4)}, ["column t is of type timestamp", "z is empty"]),
        ({"v": [[1.0], [1.0, 2.0]] * 2}, ["row 1, column v has a list of another length"]),
        ({"v": [[1.0], [None], [2.0], [3.0]]}, ["row 1, column v has a list with a number that is missing"]),
        ({"x": [1.0, float("inf"), 2.0, 3.0]}, ["row 1, column x is infinite"]),
        ({"x": [1.0, float("nan"), 2.0, None]}, ["column x lacks 2 values (first: row 1)"]),
    ],
)
def test_wrong_parquet_columns(tmp_path: Path, columns: dict[str, Any], words: list[str]) -> None:
    pq.write_table(pa.table({**columns, "label": [0, 1, 0, 1]}), tmp_path / "t.parquet")
    message = refusal(tmp_path / "t.parquet")
    assert all(word in message for word in words), message


def test_spellings_of_one_class_or_client_are_noted(tmp_path: Path) -> None:
    columns = visits()
    columns["label"][:4] = ["Cold", "Cold", "flu", "flu"]
    columns["client"][5:7] = ["Ward 0", "ward  0"]
    path = write_text(tmp_path / "t.csv", columns)
    words = "names that differ only in case or spaces count as several: Cold and cold; is each pair one class?"
    assert words in load_dataset(trial(path)).notes
    natural = load_dataset(trial(path, profile="natural", partition="natural").replace({"federation.clients": "auto"}))
    assert words in natural.notes
    clients = words.replace("Cold and cold", "Ward 0 and ward  0 and ward 0").replace("class?", "client?")
    assert clients in natural.notes
    plain = load_dataset(trial(write_text(tmp_path / "u.csv", visits())))
    assert not any("differ only" in note for note in plain.notes)


def test_two_spellings_with_spaces_in_a_parquet_table(tmp_path: Path) -> None:
    labels = ["a", "b"] * 6 + [" b"]
    pq.write_table(pa.table({"x": range(13), "label": labels}), tmp_path / "t.parquet")
    assert "( b: row 12, did you mean b?)" in refusal(tmp_path / "t.parquet")


def test_damaged_and_strange_files(tmp_path: Path) -> None:
    pq.write_table(pa.table(visits()), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[:-20])
    assert "not a readable Parquet file" in refusal(tmp_path / "t.parquet")
    assert "is not one of .csv, .tsv, .txt, .parquet" in refusal(table(tmp_path, "{}", "t.json"))
    with pytest.raises(DataError, match="nothing at"):
        read(tmp_path / "absent.csv")


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no table"):
        read(tmp_path)
    write_text(tmp_path / "a.csv", visits())
    assert read(tmp_path).class_names == ("cold", "flu", "none")
    write_text(tmp_path / "b.csv", visits())
    with pytest.raises(DataError, match=r"holds a\.csv, b\.csv; name one file"):
        read(tmp_path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write_text(tmp_path / "train.csv", {**visits(), "extra": ["1"] * 60})
    write_text(tmp_path / "test.csv", {**visits(), "other": ["1"] * 60})
    message = refusal(tmp_path)
    assert "test.csv has no column extra, which train.csv has" in message
    assert "only test.csv has column other" in message
    pq.write_table(pa.table({**visits(), "extra": ["1"] * 60}), tmp_path / "test.parquet")
    (tmp_path / "test.csv").unlink()
    assert "text and Parquet files are mixed" in refusal(tmp_path)


def test_a_fault_in_one_of_several_files_names_it(tmp_path: Path) -> None:
    write_text(tmp_path / "train.csv", visits())
    columns = visits(12)
    columns["age"][4] = "old"
    write_text(tmp_path / "test.csv", columns)
    assert "test.csv row 6, column age holds 'old' among numbers" in refusal(tmp_path)


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1000)
    assert "GiB of memory" in refusal(write_text(tmp_path / "t.csv", visits()))
    pq.write_table(pa.table(visits()), tmp_path / "t.parquet")
    assert "GiB of memory" in refusal(tmp_path / "t.parquet")


def test_columns_too_wide_for_floats(tmp_path: Path) -> None:
    columns = {**visits(), "x": [1e300 * (-1) ** i for i in range(60)], "y": [float(i) for i in range(60)]}
    with pytest.raises(DataError, match="column x is spread too widely"):
        load_dataset(trial(write_text(tmp_path / "t.csv", columns)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"augment": "crop_flip"}, "rows of a table cannot be moved"),
        ({"normalize": "imagenet"}, "tables are standardised by their training rows"),
        ({"image_size": 16}, "data.image_size = 16 is for folder: and parquet: and npz: and imagenet sources"),
        ({"profile": "natural", "n_max": 5}, "data.profile = natural keeps everything"),
        ({"partition": "natural", "on_small_client": "pad"}, "set it to skip"),
    ],
)
def test_settings_that_tables_do_not_have(data: dict[str, Any], words: str) -> None:
    faults = request_faults(DataConfig(source="table:x.csv", **data))
    assert len(faults) == 1
    assert words in faults[0]


def test_settings_that_only_tables_have() -> None:
    data = {"label_column": "y", "drop_columns": "a,b", "impute": "mean", "categorical_columns": ["c"]}
    faults = request_faults(DataConfig(source="digits", partition="natural", **data))
    assert len(faults) == 5
    assert "data.drop_columns = a, b is for table: sources; unset it" in faults
    assert "digits names no clients" in faults[-1]
    with pytest.raises(ConfigError, match="5 faults"):
        load_dataset(config("digits", partition="natural", clients=3, **data))


def test_whole_numbers_too_long_for_numbers_are_codes_and_never_one_class(tmp_path: Path) -> None:
    first, second = "1" * 150, "1" * 149 + "2"
    rows = "".join(f"{i},{second if i % 2 else first}\n" for i in range(12))
    with pytest.raises(DataError, match="write a label this long as text"):
        read(table(tmp_path, "x,label\n" + rows))
    text = rows.replace(",1", ",k1")
    assert read(table(tmp_path, "x,label\n" + text, "text.csv")).class_names == (f"k{first}", f"k{second}")
    column = pa.table({"x": [1.0, 2.0, 3.0, 4.0] * 3, "k": [1e19, 2e19] * 6, "label": ["a", "a", "b"] * 4})
    pq.write_table(column, tmp_path / "wide.parquet")
    raw = read(tmp_path / "wide.parquet", categorical_columns=("k",))
    assert len(raw.columns[1].categories or ()) == 2


def test_a_row_may_be_longer_than_a_block_of_text(tmp_path: Path) -> None:
    names = [f"{place} {'long name ' * 60}".strip() for place in range(2000)]
    with pytest.raises(DataError, match="2 columns are called 'again'"):
        read_sheet(table(tmp_path, ",".join([*(f'"{name}"' for name in names), "again", "again "]) + "\n1\n"))
    path = table(tmp_path, ",".join(f'"{name}"' for name in names) + "\n" + ",".join(["1.25"] * len(names)) + "\n")
    assert path.stat().st_size > 1 << 20
    assert len(read_sheet(path).table.column_names) == len(names)


def test_text_of_every_parquet_kind_is_text_and_empty_lists_are_called_so(tmp_path: Path) -> None:
    labels = pa.array(["a", "b"] * 6)
    pq.write_table(pa.table({"x": range(12), "label": labels.cast(pa.string_view())}), tmp_path / "view.parquet")
    assert read(tmp_path / "view.parquet").class_names == ("a", "b")
    pq.write_table(
        pa.table({"x": pa.array([[]] * 12, pa.list_(pa.float64())), "label": labels}), tmp_path / "e.parquet"
    )
    assert "row 0, column x has an empty list" in refusal(tmp_path / "e.parquet")
