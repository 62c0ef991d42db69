"""Code of the user's own is part of a run's key exactly where the run uses it."""

from __future__ import annotations

from pathlib import Path

from fedrela_bench import plugins
from fedrela_bench.nested import digest
from fedrela_bench.neutral import deciding
from fedrela_bench.study.engine import Runtime
from fedrela_bench.study.keys import Fingerprint, cell_key, numerics, trunk_key
from fedrela_bench.study.store import Store
from tests.plugins.texts import FEDLS, RELABELER, write
from tests.study.fakes import FakeEngine, config


def test_without_plugins_keys_are_those_of_before() -> None:
    some = config(relabel__tau=0.1)
    known = Fingerprint("data", numerics(some, "cpu", 1), "1")
    values = deciding(some.base())
    del values["relabel"]
    facts = {"config": values, "data": "data", "numerics": dict(known.numerics), "simulation": "1"}
    assert trunk_key(some, known) == digest(facts)
    assert cell_key(some, known) == digest({"trunk": digest(facts), "fork": some.relabelling()})


def test_only_runs_that_use_a_plugin_get_other_keys(tmp_path: Path) -> None:
    def keys(text: str) -> dict[str, str]:
        plugins.activate(plugins.read_all([write(tmp_path, "fedls.py", text)]) if text else [])
        runtime = Runtime(Store(tmp_path), FakeEngine())
        return {name: runtime.entry(config(federation__algorithm=name), "d").key for name in ("fedavg", "fedls")}

    none, first, commented = keys(""), keys(FEDLS), keys(FEDLS + "# a comment\n")
    assert none["fedavg"] == first["fedavg"] == commented["fedavg"]
    assert len({none["fedls"], first["fedls"], commented["fedls"]}) == 3
    assert keys(FEDLS) == first


def test_code_that_relabels_is_in_the_keys_of_relabelled_runs_only(tmp_path: Path) -> None:
    def keys(text: str) -> tuple[str, str]:
        plugins.activate(plugins.read_all([write(tmp_path, "next_class.py", text)]))
        runtime = Runtime(Store(tmp_path), FakeEngine())
        some = config(relabel__tau=0.1, relabel__method="next_class")
        assert runtime.trunk(some, "d").key == runtime.entry(some.base(), "d").key
        return runtime.trunk(some, "d").key, runtime.entry(some, "d").key

    (trunk, cell), (same, other) = keys(RELABELER), keys(RELABELER + "# a comment\n")
    assert trunk == same and cell != other
    assert trunk == Runtime(Store(tmp_path), FakeEngine(), code=()).entry(config(), "d").key


def test_a_runtime_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    plugins.activate(plugins.read_all([write(tmp_path, "fedls.py", FEDLS)]))
    runtime = Runtime(Store(tmp_path), FakeEngine())
    before = runtime.fingerprint(config(federation__algorithm="fedls"), "d")
    plugins.activate(())
    assert runtime.fingerprint(config(federation__algorithm="fedls"), "d") == before and before.plugins
