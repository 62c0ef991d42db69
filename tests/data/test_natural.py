"""Federations whose clients the data name, and test splits that are drawn for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.data import load_dataset
from fedrela_bench.data.load import settled
from fedrela_bench.data.partition import natural_partition
from fedrela_bench.defaults import resolve, to_yaml
from fedrela_bench.errors import ConfigError, DataError
from tests.data.makers import config, encode, pixels, visits, write_federation, write_text

unhurried = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def natural(source: str, clients: int | str = "auto", **data: Any) -> TrialConfig:
    values = {"source": source, "profile": "natural", "partition": "natural", **data}
    return parse({"data": values, "federation": {"clients": clients}})


@unhurried
@given(st.lists(st.integers(0, 6), max_size=60), st.integers(7, 9))
def test_a_natural_partition_covers_every_row_once(owners: list[int], clients: int) -> None:
    parts = natural_partition(np.array(owners, dtype=np.int64), clients)
    assert len(parts) == clients
    everything = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(everything), np.arange(len(owners)))
    for client, part in enumerate(parts):
        assert (np.diff(part) > 0).all()
        assert all(owners[row] == client for row in part)


# the number of clients -----------------------------------------------------------------------------------------------


def test_clients_follow_the_data(tmp_path: Path) -> None:
    columns = visits()
    path = write_text(tmp_path / "t.csv", columns)
    dataset = load_dataset(natural(f"table:{path}"))
    assert dataset.client_names == ("ward 0", "ward 1", "ward 2", "ward 3")
    assert sum(len(part) for part in dataset.clients) == len(dataset.labels) == 48
    # Every training row is at the client that the file says.
    by_age = {round(age, 3): client for age, client in zip(columns["age"], columns["client"], strict=True)}
    from fedrela_bench.data.load import reading_of
    from fedrela_bench.data.sources import read_source

    raw = read_source(f"table:{path}", reading_of(natural(f"table:{path}").data))
    for name, part in zip(dataset.client_names, dataset.clients, strict=True):
        ages = raw.train_images[dataset.subset[part], 0, 0, 0]
        assert {by_age[round(float(age), 3)] for age in ages} == {name}
    assert dataset.stated[1] == (
        f"clients are those that the data name: 4, with {min(map(len, dataset.clients))} to "
        f"{max(map(len, dataset.clients))} training rows"
    )


def test_auto_is_the_default_of_a_natural_partition_and_reads_back() -> None:
    config = parse({"data": {"partition": "natural", "source": "table:x.csv"}})
    assert config.federation.clients == 0
    assert config.model_dump(mode="json")["federation"]["clients"] == "auto"
    assert parse(config.model_dump(mode="json")) == config
    assert "clients: auto" in to_yaml(config)
    given_number = config.replace({"federation.clients": 5})
    assert given_number.federation.clients == 5
    for wrong in (0, -1, "many", True, 2.5):
        with pytest.raises(ConfigError, match=r"federation\.clients"):
            config.replace({"federation.clients": wrong})
    with pytest.raises(ConfigError, match=r"only data\.partition = natural names the clients"):
        parse({"federation": {"clients": "auto"}})


def test_a_different_number_is_a_fault_that_says_how_many_there_are(tmp_path: Path) -> None:
    source = f"table:{write_text(tmp_path / 't.csv', visits())}"
    with pytest.raises(ConfigError, match=r"federation\.clients = 20, but the data name 4 clients"):
        load_dataset(natural(source, 20))
    right = load_dataset(natural(source, 4))
    assert right.digest == load_dataset(natural(source)).digest
    auto = natural(source)
    assert settled(auto, right).federation.clients == 4
    assert settled(natural(source, 4), right) == natural(source, 4)


def test_defaults_deal_by_the_clients_of_a_natural_profile(tmp_path: Path) -> None:
    path = write_text(tmp_path / "t.csv", visits())
    config = resolve(f"table:{path}_natural").config
    assert (config.data.profile, config.data.partition, config.federation.clients) == ("natural", "natural", 0)
    assert config.training.model == "mlp"
    dealt = resolve(f"table:{path}_natural", overrides={"data.partition": "dirichlet"}).config
    assert (dealt.data.partition, dealt.federation.clients) == ("dirichlet", 10)
    thinned = resolve(f"table:{path}_lt", overrides={"data.partition": "natural"}).config
    assert (thinned.data.imbalance_factor, thinned.federation.clients) == (100, 0)
    # An archive names no clients, so that its natural profile is dealt.
    assert resolve("npz:x.npz_natural").config.data.partition == "dirichlet"


# kinds of sources ----------------------------------------------------------------------------------------------------


def test_no_column_of_clients(tmp_path: Path) -> None:
    columns = visits()
    del columns["client"]
    path = write_text(tmp_path / "t.csv", columns)
    with pytest.raises(DataError, match=r"none is called client; name it in data\.client_column"):
        load_dataset(natural(f"table:{path}"))
    assert load_dataset(natural(f"table:{path}", client_column="kind")).client_names == ("blue", "green", "red")


def test_faults_of_a_column_of_clients(tmp_path: Path) -> None:
    columns = visits(8)
    columns["client"] = ["a", "", "b", "a", "b", "a", "NA", "a"]
    with pytest.raises(DataError, match=r"row 3, column client has no client; .*\(2 such rows\)"):
        load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}"))
    columns["client"] = [0.5] * 8
    with pytest.raises(DataError, match=r"row 2, column client is 0\.5; a client is a whole number or text"):
        load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}"))
    with pytest.raises(DataError, match="column label cannot be label and client"):
        load_dataset(natural(f"table:{tmp_path / 't.csv'}", client_column="label"))


def test_numbered_clients_are_sorted_as_numbers_whatever_their_size(tmp_path: Path) -> None:
    big = 12_345_678_901_234_567_890
    columns = visits(12)
    columns["client"] = [10, 9, big + 1, big] * 3
    dataset = load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}"))
    assert dataset.client_names == ("9", "10", str(big), str(big + 1))


def test_a_client_whose_rows_are_all_tested_never_trains_and_is_named(tmp_path: Path) -> None:
    columns = visits(30)
    columns["split"] = ["train"] * 24 + ["test"] * 6
    columns["client"] = ["a"] * 24 + ["only test"] * 6
    # With a split of its own the file's training rows say who trains.
    assert load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}")).client_names == ("a",)
    del columns["split"]
    columns["client"] = [f"c{i}" for i in range(30)]
    dataset = load_dataset(natural(f"table:{write_text(tmp_path / 't.csv', columns)}"))
    assert len(dataset.client_names) == 30
    assert any("6 of 30 clients hold no rows and never train" in note for note in dataset.notes)
    small = natural(f"table:{tmp_path / 't.csv'}", min_client_samples=1)
    with pytest.raises(
        DataError, match=r"as its clients hold it has 24 rows .* Lower data\.min_client_samples, or set"
    ):
        load_dataset(small)


def test_thinning_leaves_every_row_with_its_client(tmp_path: Path) -> None:
    source = f"table:{write_text(tmp_path / 't.csv', visits(90))}"
    whole = load_dataset(natural(source))
    thin = load_dataset(natural(source, profile="lt", imbalance_factor=6))
    assert thin.class_counts.tolist() == [24, 9, 4]
    owner = {int(row): k for k, part in enumerate(whole.clients) for row in whole.subset[part]}
    for client, part in enumerate(thin.clients):
        assert all(owner[int(row)] == client for row in thin.subset[part])
    assert sum(map(len, thin.clients)) == 37


HELD = {"north": {"cat": 4, "dog": 2}, "south": {"dog": 3, "eel": 5}, "öst": {"cat": 3}}


@pytest.mark.parametrize("test", [0, 2])
def test_folders_of_clients(tmp_path: Path, test: int) -> None:
    root = write_federation(tmp_path / "f", HELD, test)
    (root / "clients" / "north" / "cat" / "notes.txt").write_text("x")
    dataset = load_dataset(natural(f"folder:{root}"))
    assert dataset.class_names == ("cat", "dog", "eel")
    assert dataset.client_names == ("north", "south", "öst")
    counts = dataset.client_counts
    if test:
        assert counts.tolist() == [[4, 2, 0], [0, 3, 5], [3, 0, 0]]
        assert dataset.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert len(dataset.stated) == 1
    else:
        assert counts.sum(axis=0).tolist() == [6, 4, 4]
        assert np.bincount(dataset.test_labels).tolist() == [1, 1, 1]
        assert dataset.stated[0].startswith("the source has no test split: 3 of 17 images, 0.2 of each class")
    assert "1 files are no images and were left out: clients/north/cat/notes.txt" in dataset.notes
    assert load_dataset(natural(f"folder:{root}")).digest == dataset.digest


def test_wrong_folders_of_clients(tmp_path: Path) -> None:
    root = write_federation(tmp_path / "f", HELD, 2)
    with pytest.raises(DataError, match=r"has no train/; .*it has clients/: set data\.partition to natural"):
        load_dataset(config(f"folder:{root}"))
    (root / "clients" / "empty").mkdir()
    (root / "clients" / "north" / "dog" / "000.png").unlink()
    (root / "clients" / "north" / "dog" / "001.png").unlink()
    (root / "test" / "fox").mkdir()
    with pytest.raises(DataError) as caught:
        load_dataset(natural(f"folder:{root}"))
    for words in (
        "clients/empty/ holds no class folders; remove it",
        "clients/north/dog/ holds no image",
        "class fox is in test/ but no client has it",
        "test/fox/ holds no image",
    ):
        assert words in str(caught.value)
    with pytest.raises(DataError, match="has no clients/; a natural federation of images is"):
        load_dataset(natural(f"folder:{tmp_path}"))
    lonely = write_federation(tmp_path / "g", {"a": {"cat": 1, "dog": 3}})
    with pytest.raises(DataError, match="of class cat there are fewer than 2") as refused:
        load_dataset(natural(f"folder:{lonely}"))
    assert f"(cat: {lonely / 'clients' / 'a' / 'cat' / '000.png'})" in str(refused.value)
    single = write_federation(tmp_path / "h", {"a": {"cat": 3}, "b": {"cat": 2}})
    with pytest.raises(DataError, match="cat is the only class; with a single class there is nothing to tell apart"):
        load_dataset(natural(f"folder:{single}"))


def write_images(path: Path, count: int, **columns: Any) -> None:
    made = {"img": [encode(image) for image in pixels(count, 8)], "label": np.arange(count) % 3, **columns}
    pq.write_table(pa.table(made), path)


def test_parquet_images_with_a_column_of_clients(tmp_path: Path) -> None:
    owners = [7, 3, 7, 7, 3, 3, 5, 5, 7, 7, 3, 5]
    write_images(tmp_path / "train.parquet", 12, writer=owners)
    source = f"parquet:{tmp_path}"
    with pytest.raises(DataError, match=r"no column of clients called client; .*\(writer\) in data\.client_column"):
        load_dataset(natural(source))
    drawn = load_dataset(natural(source, client_column="writer"))
    assert drawn.client_names == ("3", "5", "7")
    assert drawn.stated[0].startswith("the source has no test split: 3 of 12 images")
    write_images(tmp_path / "train-2.parquet", 4, writer=[3, 3, 5, 5], label=[0, 1, 3, 2])
    words = r"of class 3 there are fewer than 2 .* \(3: .*train-2\.parquet row 2\)"
    with pytest.raises(DataError, match=words):
        load_dataset(natural(source, client_column="writer"))
    (tmp_path / "train-2.parquet").unlink()
    write_images(tmp_path / "test.parquet", 6)
    dataset = load_dataset(natural(source, client_column="writer"))
    assert [len(part) for part in dataset.clients] == [4, 3, 5]
    labels = np.arange(12) % 3
    for name, part in zip(dataset.client_names, dataset.clients, strict=True):
        mine = [row for row, owner in enumerate(owners) if str(owner) == name]
        assert sorted(dataset.subset[part].tolist()) == mine
        assert dataset.labels[part].tolist() == sorted(labels[mine].tolist())
    (tmp_path / "test.parquet").unlink()
    with pytest.raises(DataError, match=r"no test\*\.parquet"):
        load_dataset(config(source))
