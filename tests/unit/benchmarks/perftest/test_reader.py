"""perftest's output: what no single log shows.

Its layouts, pairs and failures are in the corpus.
"""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.perftest.lines import ErrorLine, error_lines, read_command
from fabbench.model.log import Outcome
from tests.support.perftest_text import BYTES, bandwidth_row, rate_of, run
from tests.support.read_logs import read_one


@pytest.mark.parametrize("line", error_lines(), ids=lambda each: each.example)
def test_an_error_is_known_by_its_line_and_the_one_beside_it_is_none(line: ErrorLine) -> None:
    assert re.fullmatch(line.pattern, line.example)
    assert not any(re.fullmatch(each.pattern, line.counterexample) for each in error_lines())


@given(
    st.sampled_from([1, 2, 8, 1000, 65536, 8388608]),
    st.decimals("0.01", "400000", places=2),
    st.sampled_from(sorted(BYTES)),
)
def test_what_the_source_prints_always_fits(size: int, average: Decimal, unit: str) -> None:
    """Bandwidth and message rate, each rounded as printed, from one time."""
    row = bandwidth_row(size, 5000, "0.00", f"{average:.2f}", rate_of(f"{average:.2f}", size, unit))
    log = read_one(run(None, row, unit=unit))
    assert (log.outcome, log.findings, log.damaged) == (Outcome.OK, (), ())


@pytest.mark.parametrize(
    ("text", "program", "side"),
    [
        ("$ ib_write_bw", "ib_write_bw", "server"),
        (
            "u@h:~$ numactl -N 0 /opt/perftest/bin/ib_read_lat -d mlx5_0 -F 10.0.0.1",
            "ib_read_lat",
            "client",
        ),
        (
            "$ kubectl exec -it client-1 -- ib_atomic_lat -d mlx5_0 10.0.33.3 -zR",
            "ib_atomic_lat",
            "client",
        ),
        (
            "$ ib_write_bw -d mlx5_0 --out_json --tclass=106 host2 | tee log",
            "ib_write_bw",
            "client",
        ),
        ("$ ssh n1 'ib_write_bw -D 10'", "ib_write_bw", "server"),
        ("ib_write_bw", None, None),
        ("$ ib_write_bw <server> [options]", None, None),
        ("$ man ib_write_bw_new", None, None),
    ],
)
def test_command_lines(text: str, program: str | None, side: str | None) -> None:
    assert (read_command(text) or (None, None))[:2] == (program, side)


def test_a_summary_with_a_number_that_is_none_is_damaged() -> None:
    line = "Mean BW peak: 1.2.3 Gb/s, Mean BW avg: 1.00 Gb/s"
    log = read_one([line])
    assert [each.text for each in log.damaged] == [line]
