"""OpenMetrics, read by Prometheus' own parser."""

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from fabbench.analysis.compare import compare
from fabbench.analysis.gate import check
from fabbench.model.log import Outcome
from fabbench.plan.gates import parse_gate
from fabbench.report.ci_formats import to_openmetrics
from tests.support.logs_by_hand import GB, KB, column, latencies, log, rates

EFA, TCP = rates("EFA", [(KB, 0.5), (GB, 80)]), rates("TCP", [(GB, 4)])


def families(text: str) -> Mapping[str, Any]:
    """Read a document as Prometheus does; ValueError for what is none."""
    parser = import_module("prometheus_client.openmetrics.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_values_are_gauges_in_base_units() -> None:
    found = families(to_openmetrics(compare([EFA, TCP])))
    busbw = found["fabbench_busbw_bytes_per_second"]
    assert (busbw.type, busbw.unit) == ("gauge", "bytes_per_second")
    values = {
        (each.labels["configuration"], each.labels["size"]): each.value for each in busbw.samples
    }
    assert values == {("EFA", "1024"): 0.5e9, ("EFA", str(GB)): 80e9, ("TCP", str(GB)): 4e9}
    assert busbw.samples[0].labels["case"] == "all_reduce"
    (ratio,) = found["fabbench_ratio"].samples
    assert (ratio.labels["baseline"], ratio.value) == ("TCP", 20.0)
    assert {family.type for family in found.values()} == {"gauge"}
    latency = families(to_openmetrics(compare([latencies("a", [(64, 20)])])))[
        "fabbench_latency_seconds"
    ]
    assert latency.samples[0].value == pytest.approx(20e-6)


def test_outcomes_and_gates_are_numbers() -> None:
    bad = column("TCP", log([(GB, 4e9)], outcome=Outcome.OFF_FABRIC, reason="Not there."))
    comparison = compare([EFA, TCP])
    gates = [parse_gate("busbw@1G>=90GB/s"), parse_gate("ratio@1G>=10")]
    found = families(to_openmetrics(comparison, check(gates, comparison)))
    assert [each.value for each in found["fabbench_gate"].samples] == [0, 1]
    assert [each.value for each in found["fabbench_exit_status"].samples] == [1]
    comparison = compare([EFA, bad])
    found = families(
        to_openmetrics(comparison, check([parse_gate("busbw@1G>=70GB/s")], comparison))
    )
    assert [each.value for each in found["fabbench_ok"].samples] == [1, 0]
    assert math.isnan(found["fabbench_gate"].samples[0].value)
    assert "fabbench_ratio" not in found


def test_hostile_labels_stay_labels() -> None:
    label = 'a"} 1\nfabbench_ok{x="\\'
    found = families(to_openmetrics(compare([replace(EFA, label=label), TCP])))
    samples = found["fabbench_ok"].samples
    assert [each.labels["configuration"] for each in samples] == [
        label.replace("\n", r"\u000a"),
        "TCP",
    ]
