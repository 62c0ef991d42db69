"""Layers of a configuration, their precedence, and what wrong input is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.config import TrialConfig, field_names
from fedrela_bench.defaults import SIZES, dataset_defaults, resolve, to_yaml
from fedrela_bench.errors import ConfigError

NAMED = ("digits", "fashion_mnist", "cifar10", "cifar100")


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return file


def faults(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve(**given)
    return caught.value.faults


def test_without_anything_it_is_the_quick_start() -> None:
    config = resolve().config
    assert (config.data.source, config.data.profile, config.training.model) == ("digits", "lt", "digits")
    assert (config.federation.clients, config.data.imbalance_factor, config.seed) == (5, 100, 1)


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    assert resolve("cifar10_lt").config.federation.clients == 40
    fixed = {"federation.clients": 7, "training.lr": 0.5}
    assert resolve("cifar10_lt", fixed=fixed).config.federation.clients == 7
    file = write(tmp_path, "federation: {clients: 8, algorithm: fedprox}\ndata: {source: cifar100}\nseed: 3\n")
    config = resolve(config_file=file, fixed=fixed).config
    assert (config.federation.clients, config.training.lr) == (8, 0.5)
    assert (config.data.source, config.federation.algorithm, config.seed) == ("cifar100", "fedprox", 3)
    config = resolve("cifar10_step", "fedavg", config_file=file, seed=4).config
    assert (config.data.source, config.data.profile) == ("cifar10", "step")
    assert (config.federation.algorithm, config.seed, config.federation.clients) == ("fedavg", 4, 8)
    overrides = {"federation.clients": 9, "seed": 5, "federation.algorithm": "fedetf"}
    config = resolve("cifar10_step", "fedavg", config_file=file, seed=4, overrides=overrides).config
    assert (config.federation.clients, config.seed, config.federation.algorithm) == (9, 5, "fedetf")


def test_defaults_follow_the_algorithm_wherever_it_is_named(tmp_path: Path) -> None:
    etf = resolve("cifar100_lt", "fedetf").config.training
    assert (etf.lr, etf.momentum, etf.weight_decay) == (0.03, 0.5, 0.0)
    assert resolve("cifar100_lt", "fedavg").config.training.momentum == 0.9
    file = write(tmp_path, "federation: {algorithm: fedetf_dotreg}\n")
    assert resolve("cifar100_lt", config_file=file).config.training.momentum == 0.5
    assert resolve("cifar100_lt", overrides={"federation.algorithm": "fedetf"}).config.training.momentum == 0.5


def test_published_sizes() -> None:
    step = resolve("fashion_mnist_step", size="paper").config
    assert (step.federation.clients, step.federation.rounds, step.training.local_epochs) == (100, 500, 5)
    assert (step.training.batch_size, step.training.lr, step.training.weight_decay) == (64, 0.01, 1e-5)
    tailed = resolve("cifar100_lt", "fedetf_dotreg", size="paper").config
    assert (tailed.training.model, tailed.federation.clients, tailed.data.alpha) == ("resnet34", 10, 0.1)
    assert (tailed.training.batch_size, tailed.training.local_epochs, tailed.training.lr) == (8, 5, 0.03)
    assert resolve("cifar10_lt", size="paper").config.training.model == "resnet18"
    assert step.relabel_round == 400


def test_the_small_fashion_mnist_setting() -> None:
    config = resolve("fashion_mnist_step").config
    assert (config.training.model, config.federation.clients, config.federation.rounds) == ("lenet", 100, 60)
    assert (config.training.lr, config.training.local_epochs, config.training.batch_size) == (0.05, 2, 32)
    assert (config.data.imbalance_factor, config.data.minority_fraction, config.data.minority) == (20, 0.3, "even")
    assert (config.data.augment, config.data.normalize, config.relabel_round) == ("none", "none", 48)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("profile", ["lt", "step", "balanced", "natural"])
@pytest.mark.parametrize("source", [*NAMED, "folder:images", "parquet:images", "npz:x.npz", "table:x.csv"])
def test_every_default_is_a_valid_configuration(source: str, profile: str, size: Any) -> None:
    for algorithm in ("fedavg", "fedetf"):
        values = dataset_defaults(source, profile, algorithm, size)
        values["data"] |= {"source": source, "profile": profile}
        config = TrialConfig.model_validate(values)
        assert 0 < config.relabel_round < config.federation.rounds
        assert (config.data.image_size is None) == (":" not in source or source.startswith("table:"))


def test_own_images_are_balanced_unless_named_otherwise(tmp_path: Path) -> None:
    config = resolve(f"folder:{tmp_path}").config
    assert (config.data.profile, config.data.image_size) == ("balanced", 32)
    assert resolve(f"folder:{tmp_path}", overrides={"data.profile": "lt"}).config.data.profile == "lt"


@pytest.mark.parametrize("dataset", ["digits_lt", "fashion_mnist_step", "cifar100_balanced"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedetf"])
@pytest.mark.parametrize("size", SIZES)
def test_the_printed_config_feeds_back_to_an_equal_one(dataset: str, algorithm: str, size: Any, tmp_path: Path) -> None:
    overrides = {"relabel.preset": "author", "relabel.tau": 1e-4, "training.weight_decay": 1e-7}
    config = resolve(dataset, algorithm, size, overrides=overrides, seed=11).config
    file = write(tmp_path, to_yaml(config))
    for other in SIZES:
        again = resolve(config_file=file, size=other)
        assert again.config == config
        assert any("defaults not used" in note for note in again.notes)


def test_options_of_the_algorithm_feed_back(tmp_path: Path) -> None:
    config = resolve("digits_lt", "fedprox", overrides={"federation.options.mu": 0.3}).config
    assert config.federation.options == {"mu": 0.3}
    assert resolve(config_file=write(tmp_path, to_yaml(config))).config == config


def test_numbers_in_yaml_are_numbers(tmp_path: Path) -> None:
    file = write(tmp_path, "training: {lr: 1e-4}\nfederation: {algorithm: fedprox, options: {mu: 1e-3}}\n")
    config = resolve(config_file=file).config
    assert config.training.lr == 1e-4
    assert config.federation.options == {"mu": 1e-3}


def test_a_preset_named_above_replaces_what_is_below_it(tmp_path: Path) -> None:
    printed = write(tmp_path, to_yaml(resolve().config))
    config = resolve(config_file=printed, overrides={"relabel.preset": "author"}).config
    assert (config.relabel.pick, config.relabel.std_ddof, config.relabel.posterior_views) == ("drawn", 0, 5)
    config = resolve(config_file=printed, overrides={"relabel.preset": "author", "relabel.pick": "all"}).config
    assert (config.relabel.pick, config.relabel.std_ddof) == ("all", 0)


def test_all_faults_of_all_layers_in_one_message(tmp_path: Path) -> None:
    file = write(tmp_path, "training:\n  lr: fast\n  epochs: 3\nrelabel: 4\nspeed: 1\ndata: {alpha: -1}\n")
    found = faults(
        dataset="cifar11_lt",
        algorithm="fedavgg",
        config_file=file,
        overrides={"training.model": "resnet19", "relabel.tau": 5, "training.lrr": 1},
        seed=-1,
    )
    text = "\n".join(found)
    assert len(found) == 11
    assert any(fault.startswith("seed = -1") for fault in found)
    assert f"unknown field training.epochs ({file}, line 3); did you mean training.local_epochs?" in text
    assert f"relabel = 4 ({file}, line 4): must be a mapping" in text
    assert f"unknown field speed ({file}, line 5)" in text
    assert f"{file}, line 2: training.lr = 'fast'" in text
    assert f"{file}, line 6: data.alpha = -1" in text
    assert "unknown dataset 'cifar11_lt'; did you mean cifar10_lt?" in text
    assert "federation.algorithm = 'fedavgg'; did you mean fedavg?" in text
    assert "training.model = 'resnet19'; did you mean resnet" in text
    assert "relabel.tau = 5" in text
    assert "did you mean 0.05?" in text
    assert "unknown field --training.lrr; did you mean training.lr?" in text


def test_options_that_an_algorithm_does_not_have() -> None:
    found = faults(algorithm="fedprox", overrides={"federation.options.mju": 0.1})
    assert len(found) == 1
    assert "mju" in found[0]
    assert "did you mean mu?" in found[0]
    assert "mu" in faults(algorithm="fedavg", overrides={"federation.options.mu": 0.1})[0]


def test_an_inverse_imbalance_factor_is_explained() -> None:
    assert "did you mean 100?" in faults(overrides={"data.imbalance_factor": 0.01})[0]


def test_a_file_that_is_not_there_joins_the_other_faults(tmp_path: Path) -> None:
    found = faults(config_file=tmp_path / "no.yaml", overrides={"training.lr": -1})
    assert len(found) == 2
    assert "no such file" in found[0]
    assert found[1].startswith("training.lr = -1")


def test_notes_say_which_layer_set_what(tmp_path: Path) -> None:
    notes = resolve("digits_lt", overrides={"training.lr": 0.1}).notes
    assert notes[0].startswith("cpu defaults of digits_lt for fedavg: ")
    assert notes[-1] == "dotted overrides: training.lr"


def test_every_field_can_be_set_by_a_dotted_override() -> None:
    dumped = resolve().config.model_dump(mode="json")
    for name in field_names():
        if name.startswith("data.") and name.endswith(("profile", "source")):
            continue
        value: Any = dumped
        for part in name.split("."):
            value = value[part]
        assert resolve(overrides={name: value}).config == resolve().config


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("data.source", "дигитс", ["data.source = 'дигитс'", "valid: "]),
        ("data.source", "", ["data.source = ''"]),
        ("data.source", "folder:", ["names no path; write folder:PATH"]),
        ("data.minority", [], ["data.minority = []", "even, last or different class ids"]),
        ("data.minority", [0, 1, 1], ["data.minority = [0, 1, 1]"]),
        ("data.minority", [-1], ["data.minority = [-1]"]),
        ("data.minority", ["a"], ["data.minority = ['a']"]),
        ("data.minority", "odd", ["data.minority = 'odd'"]),
        ("relabel.posterior_head", "nope", ["relabel.posterior_head = 'nope' of fedavg", "scored"]),
        ("seed", 2**32, ["seed = 4294967296", "4294967296"]),
        ("training.lr", "1e-4", ["training.lr = '1e-4'", "not text"]),
        ("relabel.start", "0.8", ["relabel.start = '0.8'"]),
        ("federation.options.mu", 0.1, ["federation.options.mu; fedavg has no options, leave it out"]),
    ],
)
def test_values_that_the_types_would_let_pass(name: str, value: Any, words: list[str]) -> None:
    found = faults(overrides={name: value})
    assert len(found) == 1
    assert all(word in found[0] for word in words)


def test_faults_of_fields_together_name_the_file_and_the_line(tmp_path: Path) -> None:
    file = write(tmp_path, "relabel:\n  score: none\n  constant_threshold: 1.0\n")
    assert faults(config_file=file) == [
        f"{file}, line 3: relabel.constant_threshold has no effect with score = none; drop one of the two"
    ]


def test_a_dotted_key_of_a_file_is_told_to_nest(tmp_path: Path) -> None:
    file = write(tmp_path, "training.lr: 0.1\n")
    assert faults(config_file=file) == [
        f"training.lr ({file}, line 1): write it as lr inside training, or as --training.lr VALUE"
    ]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"relabel.tau": 0.05, "relabel.start": 100}, "relabel.tau = 0.05 has no effect: T = 100 of 80 rounds"),
        ({"relabel.tau": 0.05, "relabel.start": 1.0}, "relabel.tau = 0.05 has no effect: T = 80 of 80 rounds"),
        ({"relabel.tau": 0.05, "federation.rounds": 1}, "relabel.tau = 0.05 has no effect: T = 1 of 1 rounds"),
        ({"relabel.preset": "author"}, "relabel.tau = 0: labels stay; learning rate x 0.1 from round 64"),
        ({"relabel.tau": 0.05}, ""),
        ({}, ""),
        ({"relabel.tau": 0.05, "relabel.preset": "author"}, ""),
    ],
)
def test_notes_say_when_nothing_is_relabelled(overrides: dict[str, Any], words: str) -> None:
    notes = [note for note in resolve(overrides=overrides).notes if note.startswith("note: ")]
    assert len(notes) == bool(words)
    assert all(note.startswith(f"note: {words}") for note in notes)
