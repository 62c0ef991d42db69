"""`--plugin` on the verbs: listed, shown, searched, run; told when it changes."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench.cli import main
from fedrela_bench.cli.plugged import command_line
from fedrela_bench.plugins import sources
from tests.plugins.texts import FEDLS, NET, RELABELER, write

RUN = (
    *("run", "--dataset", "digits_lt", "--algorithm", "fedls", "--training.model", "tiny"),
    *("--federation.rounds", "2", "--federation.clients", "3", "--data.imbalance_factor", "10"),
)


def call(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """Output and errors of a command that ends with this code."""
    got = main(words)
    out, err = capsys.readouterr()
    assert got == code, err
    return out, err


def test_algorithms_of_plugins_are_listed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS)
    out, _ = call(capsys, "algorithms", "list", "--plugin", path)
    assert out.index("from plugins:") > out.index("related and competing methods:")
    assert "fedls" in out[out.index("from plugins:") :]
    listed = json.loads(call(capsys, "algorithms", "list", "--json", "--plugin", path)[0])["algorithms"]
    assert [row["name"] for row in listed if row["plugin"]] == ["fedls"]
    shown, _ = call(capsys, "algorithms", "show", "fedls", "--plugin", path)
    for part in (
        "family       from plugins",
        "--federation.options.smoothing 0.1",
        "number in [0, 1)",
        "spaces show fedls",
    ):
        assert part in shown
    assert "from plugins" not in call(capsys, "algorithms", "list")[0]
    assert "unknown algorithm fedls" in call(capsys, "algorithms", "show", "fedls", code=2)[1]


def test_relabelers_and_schedules_come_by_plugins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "next_class.py", RELABELER)
    out, _ = call(capsys, "relabelers", "list", "--plugin", path)
    assert out.count("from plugin next_class.py") == 2 or out.count("from plugin") == 2
    assert "relabel.schedule: twice" in call(capsys, "relabelers", "show", "twice", "--plugin", path)[0]
    words = ("run", "--federation.rounds", "4", "--federation.clients", "3", "--relabel.tau", "0.1", "--relabel.start")
    own = ("2", "--relabel.method", "next_class", "--relabel.schedule", "twice", "--plugin", path)
    call(capsys, *words, *own, "--out", str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    changed = [line["metrics"].get("relabel/changed", 0) for line in lines]
    assert changed[:2] == [0, 0] and all(changed[2:])
    assert "unknown relabeler" in call(capsys, *words, "2", "--relabel.method", "next_class", code=2)[1]
    wrong = write(
        tmp_path, "wrong_class.py", RELABELER.replace('    purpose: ClassVar[str] = "moves', '    about = "moves')
    )
    assert "no purpose" in call(capsys, "relabelers", "list", "--plugin", wrong, code=2)[1]


def test_a_plugin_brings_its_search_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS)
    shown, _ = call(capsys, "spaces", "show", "fedls", "--plugin", path)
    assert "federation.options.smoothing: 0 to 0.3 in steps of 0.1" in shown and "training.lr: 0.05, 0.1" in shown
    assert "fedls " in call(capsys, "spaces", "list", "--plugin", path)[0]
    own = write(tmp_path, "own.yaml", "algorithm: [fedls]\nparameters: {relabel.tau: {choice: [0.05]}}\n")
    assert "own: right" in call(capsys, "spaces", "check", own, "--plugin", path)[0]
    assert "unknown algorithm fedls" in call(capsys, "spaces", "check", own, code=2)[1]
    wrong = write(tmp_path, "wrong.py", FEDLS.replace('"uniform": (0.0, 0.3, 0.1)', '"normal": (0, 1)'))
    assert (
        "federation.options.smoothing = {'normal'"
        in call(capsys, "spaces", "check", "fedls", "--plugin", wrong, code=2)[1]
    )


def test_what_is_nearly_called_like_a_hook_is_noted_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slip = FEDLS.replace("def criterion", "def critereon") + "\n    def helper(self):\n        return 1\n"
    _, err = call(capsys, "algorithms", "list", "--plugin", write(tmp_path, "slip.py", slip))
    assert re.fullmatch(
        r"note: slip.py, line \d+: algorithm class FedLS: critereon is no hook, so nothing calls it; did you mean "
        r"criterion\? \(a helper can be called _critereon\)\n",
        err,
    )
    other = RELABELER.replace("def relabel(", "def mostt(self, client):\n        return 1\n\n    def relabel(")
    other = other.replace("def later(", "def shar(self, refresh):\n        return 0.5\n\n    def later(")
    _, err = call(capsys, "relabelers", "list", "--plugin", write(tmp_path, "other.py", other))
    assert "relabeler class Next: mostt is no hook" in err and "did you mean most?" in err
    assert "schedule class Twice: shar is no hook" in err and "did you mean share?" in err
    for right in (FEDLS, RELABELER):
        assert call(capsys, "algorithms", "list", "--plugin", write(tmp_path, "right.py", right))[1] == ""


def test_what_a_plugin_does_not_say_is_not_said_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS)
    assert "differences" not in call(capsys, "algorithms", "show", "fedls", "--plugin", path)[0]
    stated = write(tmp_path, "stated.py", FEDLS + '\n    differences = "the code differs"\n')
    assert "differences  the code differs" in call(capsys, "algorithms", "show", "fedls", "--plugin", stated)[0]
    assert "differences  " in call(capsys, "algorithms", "show", "fedavg")[0]


def test_the_example_of_a_schedule_has_a_period_where_it_reads_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "relabel.py", RELABELER)
    assert "--relabel.period" not in call(capsys, "relabelers", "show", "twice", "--plugin", path)[0]
    needs = RELABELER.replace("[self.timing.start + 1]", "range(8, self.timing.rounds, self.timing.period)")
    needed = write(tmp_path, "needs.py", needs)
    assert "--relabel.period 2" in call(capsys, "relabelers", "show", "twice", "--plugin", needed)[0]
    for name in ("fixed", "linear"):
        assert "--relabel.period 2" in call(capsys, "relabelers", "show", name)[0]


def test_options_are_checked_like_those_of_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS)
    words = ("run", "--algorithm", "fedls", "--plugin", path, "--federation.options.smooting", "2")
    assert "unknown field federation.options.smooting; did you mean smoothing?" in call(capsys, *words, code=2)[1]
    words = ("run", "--algorithm", "fedls", "--plugin", path, "--federation.options.smoothing", "2")
    assert "federation.options.smoothing" in call(capsys, *words, code=2)[1]


def test_a_run_with_a_plugins_algorithm_and_model_on_two_workers_has_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "fedls.py", FEDLS)
    write(tmp_path, "net.py", NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDRELA_PLUGINS", f"fedls.py{os.pathsep}net")
    alone = json.loads(call(capsys, *RUN, "--json", "--out", "alone", "--relabel.tau", "0.1")[0])
    crew = json.loads(call(capsys, *RUN, "--json", "--relabel.tau", "0.1", "--workers", "2")[0])
    assert alone["metrics"] == crew["metrics"]
    assert [fact["plugin"] for fact in alone["plugins"]] == ["fedls.py", "net"]
    assert "--plugin fedls.py --plugin net" in command_line()
    again, _ = call(capsys, *RUN, "--out", "alone", "--relabel.tau", "0.1")
    assert "holds this run already" in again
    write(tmp_path, "fedls.py", FEDLS.replace("outputs.logits", "2 * outputs.logits"))
    _, err = call(capsys, *RUN, "--out", "alone", "--relabel.tau", "0.1", code=2)
    assert "the plugin that it uses has changed since" in err
    plain = ("run", "--dataset", "digits_lt", "--federation.rounds", "1", "--federation.clients", "3", "--json")
    assert "plugins" not in json.loads(call(capsys, *plain)[0])


def test_a_bug_in_a_plugin_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS.replace("label_smoothing=self", "label_smothing=self"))
    words = ("run", "--algorithm", "fedls", "--plugin", path, "--federation.rounds", "1", "--federation.clients", "3")
    err = call(capsys, *words, code=1)[1]
    assert "unexpected TypeError" in err and re.search(
        r"\(in fedls.py, line \d+, in criterion: return F.cross_entropy", err
    )


def test_faults_of_plugins_and_of_the_line_come_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "--plugin", "nowhere.py", "--plugin", "nothing.py", "--sed", "3")
    err = call(capsys, *words, code=2)[1]
    assert "3 faults" in err and "unknown option --sed" in err and "--plugin nowhere.py: no such file" in err


class Distribution:
    name, version = "fedpack", "1.2"


def _announce(monkeypatch: pytest.MonkeyPatch, **modules: str) -> None:
    def entry_points(group: str) -> list[Any]:
        assert group == "fedrela_bench.plugins"
        return [EntryPoint(name, value, group)._for(Distribution()) for name, value in modules.items()]  # type: ignore[attr-defined]

    monkeypatch.setattr(sources, "entry_points", entry_points)


def test_installed_packages_announce_plugins_and_broken_ones_stop_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "announced_plugin.py", FEDLS.replace('"fedls"', '"announced"'))
    write(tmp_path, "broken_plugin.py", "import nothing_of_that_name\n")
    _announce(monkeypatch, good="announced_plugin:FedLS", bad="broken_plugin", gone="not_there_at_all")
    out, err = call(capsys, "algorithms", "list")
    assert "from good of fedpack 1.2" in out
    assert "plugin bad of fedpack 1.2: importing it raised ModuleNotFoundError" in err
    assert "plugin gone of fedpack 1.2: there is no module not_there_at_all; install fedpack again, or remove it" in err
    assert "install nothing_of_that_name" in err
    err = call(capsys, "algorithms", "list", "--plugin", "bad", code=2)[1]
    assert "--plugin bad of fedpack 1.2: importing it raised" in err


def test_a_package_announces_its_plugins_by_the_files_that_an_installation_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "fedpack").mkdir(parents=True)
    write(site / "fedpack", "__init__.py", "")
    write(site / "fedpack", "method.py", FEDLS.replace('"fedls"', '"shipped"'))
    info = site / "fedpack_methods-1.2.dist-info"
    info.mkdir()
    write(info, "METADATA", "Metadata-Version: 2.1\nName: fedpack-methods\nVersion: 1.2\n")
    write(
        info,
        "entry_points.txt",
        "[console_scripts]\nother = fedpack:main\n\n"
        "[fedrela_bench.plugins]\nours = fedpack.method\ngone = fedpack.nowhere\n",
    )
    assert "shipped" not in call(capsys, "algorithms", "list")[0]
    monkeypatch.syspath_prepend(str(site))
    out, err = call(capsys, "algorithms", "list")
    assert "shipped" in out and "from ours of fedpack-methods 1.2" in out
    assert (
        "plugin gone of fedpack-methods 1.2: there is no module fedpack.nowhere; install fedpack-methods again" in err
    )
    found = json.loads(call(capsys, "algorithms", "list", "--json")[0])["algorithms"]
    assert [row["plugin"] for row in found if row["name"] == "shipped"] == ["ours of fedpack-methods 1.2"]
    words = (
        "run",
        "--algorithm",
        "shipped",
        "--plugin",
        "ours",
        "--federation.rounds",
        "1",
        "--federation.clients",
        "3",
    )
    told = json.loads(call(capsys, *words, "--json")[0])["plugins"]
    assert [fact["plugin"] for fact in told] == ["ours of fedpack-methods 1.2"]


def test_a_rule_that_is_broken_is_told_by_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "fedls.py", FEDLS.replace("label_smoothing", "reduction='sum', label_smoothing"))
    words = ("algorithms", "check", "fedls", "--plugin", path, "--federation.options.smoothing", "0.05", "--json")
    out, err = call(capsys, *words, code=1)
    told = json.loads(out)["checks"]
    assert [row["rule"] for row in told if not row["holds"]] == ["learns"] and len(told) == 27
    assert "fedls breaks the rule 'learns'" in err and "1 of 27 rules broken" in err
    words = ("algorithms", "check", "fedls", "--plugin", path, "--training.lr", "1")
    assert "--training.lr: the kit chooses it; leave it out" in call(capsys, *words, code=2)[1]
