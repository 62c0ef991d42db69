"""Plugins that do what none should: each ends with a sentence that says what, where and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedrela_bench import plugins
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.cli import main
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import prove_model
from tests.plugins.texts import FEDLS, NET, RELABELER, write

RUN = ("run", "--dataset", "digits_lt", "--federation.rounds", "2", "--federation.clients", "3")
RELABEL = (*RUN, "--relabel.tau", "0.1", "--relabel.start", "1")


def failed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """What a command says that ends with this code."""
    assert main(words) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """What is said of a plugin with this text."""
    return failed(capsys, "algorithms", "list", "--plugin", write(tmp_path, "own.py", text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class Odd(BaseException): pass\nraise Odd('x')\n", "importing it raised Odd: x"),
        ("raise GeneratorExit\n", "importing it raised GeneratorExit"),
        ("return 3\n", "line 1: 'return' outside function"),
        ("x = " + "-" * 200_000 + "1\n", "it is no Python text"),
        ("x = 1\0\n", "null bytes"),
        (FEDLS.replace('"fedls"', '"true"'), "name 'true' means something else"),
        (FEDLS.replace('"fedls"', '"auto"'), "name 'auto' means something else"),
        (RELABELER.replace('"next_class"', '"a,b=c"'), "relabeler name 'a,b=c': write it in letters"),
        (RELABELER.replace("def relabel(", "def other("), "relabeler class Next does not define relabel"),
        (RELABELER.replace("    order_free", "    draws = -1\n    order_free"), "relabeler class Next: draws is -1"),
        (FEDLS.replace("    search_space", "    kit = 3\n    search_space"), "class FedLS: kit must map facts"),
    ],
)
def test_wrong_plugins_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    told = refused(tmp_path, capsys, text)
    assert words in told and "own.py" in told and len(told) < 1000


def test_a_copy_of_a_class_of_the_package_does_not_take_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ALGORITHMS["fedavg"]
    text = FEDLS.replace('"fedls"', '"fedavg"').replace("class FedLS", "class FedAvg")
    assert "algorithm name 'fedavg' is taken by FedAvg" in refused(tmp_path, capsys, text)
    assert ALGORITHMS["fedavg"] is before
    assert "is this package itself" in failed(capsys, "algorithms", "list", "--plugin", "fedrela_bench.algorithms")
    assert ALGORITHMS["fedavg"] is before


def test_two_files_with_one_class_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a.py", FEDLS), write(tmp_path, "b.py", FEDLS + "\n# later\n")]
    with pytest.raises(ConfigError, match=r"b\.py: .*algorithm name 'fedls' is taken by FedLS"):
        plugins.activate(plugins.read_all(paths))


def test_what_cannot_be_read_and_what_cannot_be_imported_come_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").symlink_to(tmp_path / "gone.py")
    given = [str(tmp_path / "broken.py"), write(tmp_path, "raises.py", "1 / 0\n"), write(tmp_path, "empty.py", "")]
    told = failed(capsys, "algorithms", "list", *(word for path in given for word in ("--plugin", path)))
    assert "3 faults" in told and "is a link to nothing" in told
    assert "ZeroDivisionError" in told and "registers nothing" in told


def test_a_name_that_no_file_can_have_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("algorithms", "list", "--plugin", "a" * 5000), ("data", "show", "--dataset", "table:" + "a" * 5000)):
        told = failed(capsys, *words)
        assert "no file can have a name this long" in told and len(told) < 300


def test_what_plugins_print_stays_out_of_what_machines_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talks = FEDLS.replace("        return", "        print('in a step')\n        return") + "print('at import')\n"
    path = write(tmp_path, "talks.py", "\ufeff" + talks)
    assert main(["algorithms", "list", "--json", "--plugin", path]) == 0
    out, err = capsys.readouterr()
    assert "fedls" in {row["name"] for row in json.loads(out)["algorithms"]} and "at import" in err
    assert main([*RUN, "--algorithm", "fedls", "--plugin", path, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["rounds"] == 2 and "in a step" in err


ANSWERS = {
    "return Relabelled(labels, (labels != client.labels).astype(float))": "",
    "return None": "gave a NoneType; give Relabelled",
    "return labels": "gave a ndarray; give Relabelled",
    "return Relabelled(labels.tolist(), labels * 0.0)": "as list; give two numpy arrays",
    "return Relabelled(labels, labels * np.nan)": "strength that is not finite",
    "return Relabelled(labels + 0.5, labels * 0.0)": "labels of type float64",
    "return Relabelled(labels - 50, labels * 0.0)": "classes are 0 to 9",
    "return Relabelled(labels[1:], labels[1:] * 0.0)": "2 faults",
}


def test_relabelers_that_answer_nonsense_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, *wrong = ANSWERS
    for number, answer in enumerate(wrong):
        path = write(tmp_path, f"answers{number}.py", RELABELER.replace(good, answer))
        told = failed(capsys, *RELABEL, "--relabel.method", "next_class", "--plugin", path)
        assert "relabeler next_class" in told and ANSWERS[answer] in told, told
    raises = RELABELER.replace(good, "raise SystemExit(3)")
    path = write(tmp_path, "leaves.py", raises)
    told = failed(capsys, *RELABEL, "--relabel.method", "next_class", "--plugin", path, code=1)
    assert "SystemExit: 3 (in leaves.py, line " in told


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ("return None", "later() gave None"),
        ("return 'ab'", "later() gave 'ab'"),
        ("return iter(lambda: 1, 2)", "give ascending whole rounds"),
        ("return [2]\n\n    def share(self, refresh):\n        return 'x'", "share(0) gave 'x'"),
        ("return [2]\n\n    def share(self, refresh):\n        return float('nan')", "share(0) gave nan"),
    ],
)
def test_schedules_that_answer_nonsense_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], later: str, words: str
) -> None:
    path = write(tmp_path, "later.py", RELABELER.replace("return [self.timing.start + 1]", later))
    told = failed(capsys, *RELABEL, "--relabel.schedule", "twice", "--plugin", path)
    assert "schedule twice" in told and words in told


FORWARD = r"return torch\.relu\(.*\)"


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return torch.relu(x)[:, :3]", "gives 3 features, not (B, 16)"),
        ("return torch.relu(x)[:1]", "gives shape (1, 16)"),
        ("return torch.relu(x).double()", "gives torch.float64 values"),
        ("return None", "gives a NoneType"),
        ("return x / (1 // 0)", "ZeroDivisionError"),
        ("return nn.functional.dropout(x, 0.5)", "draws random numbers"),
    ],
)
def test_networks_are_proven_before_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], forward: str, words: str
) -> None:
    body = f"x = self.linear(images.flatten(1))\n        {forward}"
    path = write(tmp_path, "net.py", re.sub(FORWARD, lambda found: body, NET))
    told = failed(capsys, *RUN, "--training.model", "tiny", "--plugin", path)
    assert "model tiny" in told and words in told


def test_a_network_that_keeps_its_word_is_proven_once(tmp_path: Path) -> None:
    plugins.activate(plugins.read_all([write(tmp_path, "net.py", NET)]))
    prove_model("tiny", (1, 8, 8))
    prove_model("lenet", (1, 28, 28))


def test_an_error_outside_of_the_plugins_lines_still_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FEDLS + "\n    def server_step(self, sums, server, participants):\n        return None\n"
    path = write(tmp_path, "none.py", text)
    told = failed(capsys, *RUN, "--algorithm", "fedls", "--plugin", path, code=1)
    assert "unexpected TypeError" in told and "none.py: `algorithms check NAME`" in told


def test_facts_for_the_kit_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FEDLS.replace("    search_space", "    kit = {'server': 'mien'}\n    search_space")
    told = failed(capsys, "algorithms", "check", "fedls", "--plugin", write(tmp_path, "kit.py", text))
    assert "fact server = 'mien'; give one of mean, rounding, own, other" in told
