"""A benchmark of one file: what it says of itself takes effect wherever fabbench's own have it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.benchmarks import benchmark_named, benchmarks
from fabbench.model.log import METRICS
from tests.support.distributions import install

PLUGIN = """
from types import MappingProxyType

from fabbench.benchmarks import Benchmark, Reader
from fabbench.model.log import Point, Record


class WireReader(Reader):
    def __init__(self):
        self.record = None

    def feed(self, line):
        words = line.text.split()
        if words[:1] == ["WIRE"]:
            self.record = Record(benchmark="wire", case="wire", finished=None)
            self.record.facts |= {"transport": words[1], "firmware": words[2]}
            return ()
        if self.record is None or len(words) != 3:
            return None
        size, latency, rate = map(float, words)
        point = Point(int(size), {}, ("latency", "message_rate"), (latency * 1e-6, rate))
        self.record.points.append(point)
        return (point,)

    def close(self):
        record, self.record = self.record, None
        return () if record is None else (record,)


class Wire(Benchmark):
    name = "wire"
    between_two = True
    default_metrics = ("message_rate",)
    resolution = MappingProxyType({"message_rate": (1000.0,)})
    versions = ("firmware",)

    def reader(self):
        return WireReader()

    def transports(self, fabric):
        return frozenset({"copper"}) if fabric == "tcp" else super().transports(fabric)


IT = Wire()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the plug-in, and two logs that it reads."""
    made = tmp_path_factory.mktemp("site")
    install(
        made, "wire", {"fabbench.benchmarks": {"wire": "wire_benchmark:IT"}}, wire_benchmark=PLUGIN
    )
    (made / "new.log").write_text("WIRE copper 7.1\n8 1.5 4000\n16 1.6 90000\n")
    (made / "old.log").write_text("WIRE copper 7.0\n8 1.2 5000\n16 1.6 90000\n")
    return made


def fabbench(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "fabbench", *words]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_its_own_metric_step_and_versions_are_compared(folder: Path) -> None:
    done = fabbench(
        folder, "compare", "new.log", "old.log", "--format", "json", "--gate", "message_rate:5%"
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr.startswith("Gate inconclusive: message_rate:5%: ")
    assert found["metric"] == "message_rate"
    assert [row["versions"] for row in found["rows"][:2]] == ["firmware 7.1", "firmware 7.0"]
    # 20 % less, and one step of what it prints; measured once.
    assert found["stands_out"][0]["trend"] == "undecided"
    assert any("neither shown nor excluded" in note for note in found["notes"])
    assert not any("Not stated by the logs" in note for note in found["notes"])


@pytest.mark.parametrize(("fabric", "outcome"), [("tcp", "ok"), ("efa", "off-fabric")])
def test_a_fabric_is_proven_by_its_own_transport(folder: Path, fabric: str, outcome: str) -> None:
    done = fabbench(
        folder, "parse", "new.log", "--fabric", fabric, "--format", "json", "--exit-zero"
    )
    assert [log["outcome"] for log in json.loads(done.stdout)["logs"]] == [outcome]


def test_a_benchmark_that_nobody_has_any_more_has_every_default() -> None:
    gone = benchmark_named("gone")
    assert gone is benchmark_named(None)
    assert gone.transports("tcp") == {"socket"}
    assert gone.printed_steps("busbw", 1e9) == ()
    assert gone.metrics_of("gone")[0] == "busbw"
    with pytest.raises(LookupError):
        gone.reader()


@pytest.mark.parametrize("name", benchmarks())
def test_metrics_have_names_of_the_contract(name: str) -> None:
    benchmark = benchmark_named(name)
    assert {*benchmark.default_metrics, *benchmark.resolution} <= {*METRICS}
    for steps in benchmark.resolution.values():
        assert sorted(steps, reverse=True) == list(steps)
