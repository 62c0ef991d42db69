"""Plugins are found, read, imported, put in force and withdrawn; what is wrong with them is told at once."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import pytest

from fedrela_bench import plugins
from fedrela_bench.algorithms import ALGORITHMS, Algorithm, build_algorithm, register
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import build_backbone, model_names
from tests.plugins.texts import FEDLS, NET, write

OUTPUT = '''
from . import helper
from fedrela_bench.algorithms import register

@register
class Packed(helper.Base):
    """In a folder."""

    name = "packed"
'''
HELPER = """
from fedrela_bench.algorithms import Algorithm

class Base(Algorithm):
    citation = purpose = "test"
"""


def load(*given: str) -> tuple[plugins.Plugin, ...]:
    found = plugins.read_all(given)
    plugins.activate(found)
    return tuple(found)


def faults(*given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*given)
    return str(caught.value)


def test_a_file_registers_and_is_withdrawn(tmp_path: Path) -> None:
    load(write(tmp_path, "fedls.py", FEDLS), write(tmp_path, "net.py", NET))
    assert build_algorithm("fedls", {"smoothing": 0.2}, 10).options.smoothing == 0.2  # type: ignore[attr-defined]
    assert build_backbone("tiny", (1, 8, 8)).feature_dim == 16
    assert plugins.origin_of("algorithm", "fedls").endswith("fedls.py")
    assert plugins.origin_of("algorithm", "fedavg") == ""
    plugins.activate(())
    assert "fedls" not in ALGORITHMS and "tiny" not in model_names()


def test_nothing_of_the_package_counts_as_a_plugins(tmp_path: Path) -> None:
    load(write(tmp_path, "fedls.py", FEDLS))
    assert {name for name, _ in plugins.provided()} == {"fedls"}


def test_the_digest_is_of_the_text(tmp_path: Path) -> None:
    first, again = (plugins.read_all([write(tmp_path / name, "fedls.py", FEDLS)])[0] for name in "ab")
    (other,) = plugins.read_all([write(tmp_path / "c", "fedls.py", FEDLS + "# more\n")])
    assert first.digest == again.digest != other.digest
    assert first.module == again.module != other.module


def test_a_changed_file_replaces_the_one_before(tmp_path: Path) -> None:
    path = write(tmp_path, "fedls.py", FEDLS)
    load(path)
    first = ALGORITHMS["fedls"]
    write(tmp_path, "fedls.py", FEDLS.replace("own work", "other work"))
    load(path)
    assert ALGORITHMS["fedls"].citation == "other work"
    write(tmp_path, "fedls.py", FEDLS)
    load(path)
    assert ALGORITHMS["fedls"] is first


def test_for_a_while_another_version_is_in_force(tmp_path: Path) -> None:
    (old,) = plugins.read_all([write(tmp_path / "old", "fedls.py", FEDLS.replace("own work", "old work"))])
    (new,) = load(write(tmp_path, "fedls.py", FEDLS))
    with plugins.only([old]):
        assert ALGORITHMS["fedls"].citation == "old work"
    assert ALGORITHMS["fedls"].citation == "own work" and plugins.active() == (new,)


def test_a_folder_is_a_package(tmp_path: Path) -> None:
    write(tmp_path, "mine/helper.py", HELPER)
    write(tmp_path, "mine/__init__.py", OUTPUT)
    (plugin,) = load(str(tmp_path / "mine"))
    assert ALGORITHMS["packed"].__mro__[1].__module__ == f"{plugin.module}.helper"
    before = plugin.digest
    write(tmp_path, "mine/helper.py", HELPER + "\n")
    assert plugins.read_all([str(tmp_path / "mine")])[0].digest != before


def test_classes_travel_by_the_name_of_their_module(tmp_path: Path) -> None:
    load(write(tmp_path, "fedls.py", FEDLS))
    algorithm = build_algorithm("fedls", {}, 3)
    assert pickle.loads(pickle.dumps(algorithm)).options == algorithm.options


def test_a_module_and_a_file_beside_are_found_by_bare_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "bare_name.py", FEDLS)
    write(tmp_path / "lib", "found_on_path/sub.py", NET)
    write(tmp_path / "lib", "found_on_path/__init__.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    first, second = load("bare_name", "found_on_path.sub")
    assert first.files and first.module.startswith("fedrela_plugin_bare_name_")
    assert not second.files and second.module == "found_on_path.sub"
    assert {name for name, _ in plugins.provided()} == {"fedls", "tiny"}
    write(tmp_path / "lib", "found_on_path/__init__.py", "# changed\n")
    assert plugins.read_all(["found_on_path.sub"])[0].digest != second.digest


def test_a_module_imported_before_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "imported_before.py", FEDLS.replace("fedls", "fedls_before"))
    __import__("imported_before")
    load("imported_before")
    assert plugins.origin_of("algorithm", "fedls_before") == "imported_before"
    plugins.activate(())
    del sys.modules["imported_before"]


# faults --------------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_told_together(tmp_path: Path) -> None:
    write(tmp_path, "fedls.py", FEDLS)
    (tmp_path / "folder").mkdir()
    text = faults(
        str(tmp_path / "fedsl.py"),
        write(tmp_path, "broken.py", "x = 1\ndef f(:\n"),
        str(tmp_path / "folder"),
        "no_such_module_anywhere",
        "",
    )
    assert "5 faults" in text
    assert f"no such file; did you mean {tmp_path / 'fedls.py'}?" in text
    assert "broken.py, line 2: invalid syntax" in text and "def f(:" in text
    assert "is a folder without __init__.py" in text
    assert "there is no module no_such_module_anywhere" in text


def test_what_fails_at_import_shows_the_plugins_lines(tmp_path: Path) -> None:
    write(tmp_path, "helper.py", "")
    text = faults(
        write(tmp_path, "raises.py", "def f():\n    return 1 / 0\n\n\nf()\n"),
        write(tmp_path, "sibling.py", "import helper\n"),
        write(tmp_path, "missing.py", "import not_installed_here\n"),
        write(tmp_path, "leaves.py", "raise SystemExit(3)\n"),
        write(tmp_path, "nothing.py", "x = 1\n"),
    )
    assert "ZeroDivisionError: division by zero" in text
    assert "raises.py, line 5, in <module>: f()" in text and "raises.py, line 2, in f: return 1 / 0" in text
    assert "write `from . import helper`, and give the folder" in text
    assert "install not_installed_here where this command runs" in text
    assert "SystemExit: 3" in text
    assert "nothing.py: registers nothing; put @register" in text


def test_what_cannot_be_registered_is_told_with_its_line_and_all_at_once(tmp_path: Path) -> None:
    code = """
from fedrela_bench.algorithms import Algorithm, register
from fedrela_bench.models import register_model

@register
class Nameless(Algorithm):
    purpose = "test"

@register
class Taken(Algorithm):
    name, citation, purpose = "fedavg", "test", "test"

@register
def function(): ...

@register
class Strange(Algorithm):
    name, citation, purpose = "strange", "test", "test"
    OptionsModel, search_space = dict, 3

@register_model("lenet")
def lenet(shape, norm): ...

@register_model("with space")
def spaced(shape, norm): ...

@register_model
def unnamed(shape, norm): ...
"""
    text = faults(write(tmp_path, "all_wrong.py", code))
    for part in (
        "all_wrong.py, line 5: algorithm class Nameless has no name and no citation",
        "algorithm name 'fedavg' is taken by FedAvg; choose another name",
        "register is for classes that derive from fedrela_bench.algorithms.Algorithm, not for a function",
        "algorithm class Strange: OptionsModel must be a class",
        "algorithm class Strange: search_space must map options to ranges",
        "a model named lenet is registered already",
        "model name 'with space': write it in letters",
        'register_model needs a name; write @register_model("mine")',
    ):
        assert part in text
    assert ALGORITHMS["fedavg"].__qualname__ == "FedAvg" and "strange" not in ALGORITHMS


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.py", FEDLS), write(tmp_path, "b.py", FEDLS.replace("FedLS", "Other"))
    assert "algorithm name 'fedls' is taken by FedLS" in faults(first, second)


def test_outside_of_plugins_a_wrong_class_raises_at_once() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        register(type("Nameless", (Algorithm,), {"citation": "x", "purpose": "x"}))


def test_outside_of_plugins_a_slip_in_a_hooks_name_is_a_warning() -> None:
    facts = {"name": "slipped", "citation": "x", "purpose": "x", "__module__": "own.code"}
    with pytest.warns(UserWarning, match="algorithm class Slip: server_stp is no hook.*did you mean server_step"):
        register(type("Slip", (Algorithm,), {**facts, "server_stp": lambda self: None}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Both are there: the other one is a helper.
        both = {"server_steps": lambda self: None, "server_step": lambda self: None}
        register(type("Slip", (Algorithm,), {**facts, **both}))
    del ALGORITHMS["slipped"]


def test_a_model_that_cannot_be_built_names_the_line(tmp_path: Path) -> None:
    load(write(tmp_path, "net.py", NET.replace("channels * height", "channels * depth")))
    with pytest.raises(ConfigError, match=r"NameError.*in net.py, line 15, in __init__: self.linear"):
        build_backbone("tiny", (1, 8, 8))
    load(write(tmp_path, "plain.py", NET.replace("(Backbone)", "(nn.Module)").replace("feature_dim=16", "")))
    with pytest.raises(ConfigError, match=r"not a fedrela_bench.models.Backbone.*register_module"):
        build_backbone("tiny", (1, 8, 8))


# what is used --------------------------------------------------------------------------------------------------------


def test_only_what_a_configuration_names_is_in_its_code(tmp_path: Path) -> None:
    ls, net = load(write(tmp_path, "fedls.py", FEDLS), write(tmp_path, "net.py", NET))
    code = plugins.provided()
    assert plugins.code_of(code, {"federation": {"algorithm": "fedavg"}}) == ()
    assert plugins.code_of(code, {"federation": {"algorithm": "fedls"}}) == (ls.digest,)
    both = {"federation": {"algorithm": "fedls"}, "training": {"model": "tiny"}}
    assert plugins.code_of(code, both) == tuple(sorted((ls.digest, net.digest)))
    assert plugins.used(both) == (ls, net)
    told = plugins.facts(plugins.used(both))
    assert [fact["provides"] for fact in told] == [["algorithm fedls"], ["model tiny"]]


def test_a_class_that_derives_from_another_plugins_depends_on_both(tmp_path: Path) -> None:
    derived = """
from fedrela_bench.algorithms import ALGORITHMS, register

@register
class Derived(ALGORITHMS["fedls"]):
    name = "derived"
"""
    ls, own = load(write(tmp_path, "fedls.py", FEDLS), write(tmp_path, "derived.py", derived))
    assert plugins.code_of(plugins.provided(), ["derived"]) == tuple(sorted((ls.digest, own.digest)))
