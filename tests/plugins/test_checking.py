"""The public kit finds what is wrong with algorithms and models of users, and says how to put it right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedrela_bench import plugins
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import Backbone, register_model
from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import broken, cases_of, check_algorithm, check_model, toys
from fedrela_bench.testing.clients import CLIENTS
from fedrela_bench.testing.contract import CONTRACT
from fedrela_bench.testing.rules import Check
from fedrela_bench.testing.runs import RUNS
from tests.plugins.texts import NET, WRONG, write


@pytest.fixture
def wrong(tmp_path: Path) -> None:
    plugins.activate(plugins.read_all([write(tmp_path, "wrong.py", WRONG)]))


def rules(name: str, checks: tuple[Check, ...] = CONTRACT) -> dict[str, str]:
    """The rules that an algorithm breaks, with what is told."""
    return {check.name: text for check, text in broken(checks, cases_of(name)[0]) if text}


def test_state_in_self_is_found(wrong: None) -> None:
    told = rules("wrong_self")
    assert {"local-training", "processes"} <= set(told)
    assert "local training changes the algorithm" in told["local-training"]
    assert "keep what a client remembers in context.state" in told["local-training"]


def test_unkeyed_random_numbers_are_found(wrong: None) -> None:
    told = rules("wrong_draws")
    assert "gives something else the second time" in told["local-training"]
    assert "draw random numbers from context.generator(purpose)" in told["local-training"]


def test_undeclared_state_is_found_and_named(wrong: None) -> None:
    told = rules("wrong_state")
    assert set(told) == {"client-state"}
    assert "(last), declared are 0" in told["client-state"]
    assert "return the floats of context.state from client_state_floats" in told["client-state"]


def test_a_bug_is_told_with_its_line(wrong: None) -> None:
    with pytest.raises(AssertionError) as caught:
        check_algorithm("wrong_bug")
    text = str(caught.value)
    assert (
        "IndexError" in text
        and "wrong.py, line" in text
        and "in criterion: return outputs.logits[labels, 10_000]" in text
    )
    assert text.count("breaks the rule") > 20


def test_what_is_special_is_declared_on_the_class_or_in_the_call(wrong: None) -> None:
    assert not rules("half_right", CLIENTS)
    assert {"single-participant", "centralised"} <= {
        check.name for check, text in broken(CLIENTS, cases_of("half_right", server="mean")[0]) if text
    }


def test_wrong_facts_and_names_are_faults(wrong: None) -> None:
    with pytest.raises(ConfigError) as caught:
        check_algorithm("half_rigth", servre="own")
    assert "unknown fact servre; did you mean server?" in str(caught.value)
    assert "did you mean half_right?" in str(caught.value)
    with pytest.raises(ConfigError, match=r"unknown field federation\.options\.mu"):
        check_algorithm("half_right", {"mu": 1})


@register_model("kit_wrong_random")
class Random(Backbone):
    def __init__(self, input_shape: tuple[int, int, int], norm: str) -> None:
        super().__init__(feature_dim=8)
        self.linear = nn.LazyLinear(8) if norm == "none" else nn.Linear(64, 8)
        self.unused = nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        x = self.linear(images.flatten(1))
        return x + 0.1 * torch.randn_like(x) if self.training else x.sum(dim=0)


def test_models_are_checked_the_same_way(tmp_path: Path) -> None:
    plugins.activate(plugins.read_all([write(tmp_path, "net.py", NET)]))
    check_model("tiny", (1, 8, 8))
    check_model("resnet8", (3, 16, 16), norm="group")
    with pytest.raises(AssertionError) as caught:
        check_model("kit_wrong_random", (1, 8, 8))
    text = str(caught.value)
    for part in (
        "model kit_wrong_random for images of 1x8x8 breaks the rule 'features'",
        "eval mode, batch of 1, torch.float32: gives shape (8,)",
        "breaks the rule 'random'",
        "breaks the rule 'gradients'",
        "backbone.unused.weight, backbone.unused.bias get no gradient",
    ):
        assert part in text
    with pytest.raises(ConfigError, match="unknown model"):
        check_model("no_such_model", (1, 8, 8))


COUNTS = '''
import torch

from fedrela_bench.algorithms import Algorithm, register


@register
class Counting(Algorithm):
    """Counts."""

    name, citation, purpose = "counting", "test", "counts rounds"

    def initial_server_state(self, server):
        return {"t": 0, "fine": torch.zeros(1)}

    def initial_client_state(self, context):
        return {"seen": [1]}

    def client_state_floats(self, size):
        return 1
'''


def counting(folder: Path, text: str) -> ConfigError:
    plugins.activate(plugins.read_all([write(folder, "counting.py", text)]))
    with pytest.raises(ConfigError) as caught:
        Simulation(toys.config(federation={"algorithm": "counting"}), toys.skewed())
    return caught.value


def test_a_start_from_what_is_no_tensor_is_refused_before_the_first_round(tmp_path: Path) -> None:
    told = "algorithm counting: initial_server_state has 't' of type int; keep tensors, such as torch.tensor(0)"
    client = "algorithm counting: initial_client_state has 'seen' of type list; keep tensors, such as torch.tensor(0)"
    assert counting(tmp_path / "a", COUNTS).faults == [told, client]
    fixed = COUNTS.replace('"t": 0', '"t": torch.tensor(0)')
    assert counting(tmp_path / "b", fixed).faults == [client]
    none = fixed.replace('return {"t": torch.tensor(0), "fine": torch.zeros(1)}', "server.state = {}")
    assert "initial_server_state is of type NoneType; give a dict of tensors by name" in str(
        counting(tmp_path / "c", none)
    )


LATER = """
    def server_step(self, sums, server, participants):
        server.state["count"] = 1
        return sums["params"]
"""


def test_what_a_round_does_wrong_is_told_there(tmp_path: Path) -> None:
    sound = COUNTS.replace('"t": 0, ', "")
    buggy = sound.replace("[1]", 'context.server.state["later"]')
    plugins.activate(plugins.read_all([write(tmp_path / "a", "counting.py", buggy)]))
    trial = toys.config(federation={"algorithm": "counting"})
    with pytest.raises(KeyError, match="later"):
        Simulation(trial, toys.skewed()).run_round()
    late = sound.replace("[1]", "torch.zeros(1)") + LATER
    plugins.activate(plugins.read_all([write(tmp_path / "b", "counting.py", late)]))
    simulation = Simulation(trial, toys.skewed())
    simulation.run_round()
    with pytest.raises(ConfigError, match=r"counting: server.state has 'count' of type int.* torch.tensor\(1\)"):
        simulation.snapshot()


def test_the_kit_tells_of_it_once(tmp_path: Path) -> None:
    plugins.activate(plugins.read_all([write(tmp_path, "counting.py", COUNTS)]))
    with pytest.raises(AssertionError) as caught:
        check_algorithm("counting")
    text = str(caught.value)
    assert text.count("breaks the rule") == 1 and "breaks the rule 'start'" in text
    assert "'t' of type int" in text and "'seen' of type list" in text


def test_the_kit_names_what_is_not_said(tmp_path: Path) -> None:
    plugins.activate(
        plugins.read_all([write(tmp_path, "half.py", WRONG.replace('"""A server that', '"""  """; """A'))])
    )
    (told,) = [text for check, text in broken(RUNS[:1], cases_of("half_right")[0])]
    assert "seen: the class's docstring is empty" in told
