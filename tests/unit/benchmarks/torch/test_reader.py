"""Reports of torch all_reduce benchmarks: both forms, their variants, and their units by version."""

import random
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.model.log import Outcome
from fabbench.model.plan import Proof
from tests.support.read_logs import figures, read_lines, read_one
from tests.support.torch_report import fmt_bytes, profile, sentences, table

ROWS = ((32768, 0.48e9), (1 << 20, 8.84e9), (1 << 29, 47.5e9), (1 << 34, 182.33e9))
HEADER = "| payload |    busbw   |    algbw   |"


def rates(line: str, unit: str = "GBps", factor: int = 10**9) -> list[float]:
    """The rates in a line by its own words, in base units."""
    return [float(Decimal(digits) * factor) for digits in re.findall(rf"(\d+\.\d+) ?{unit}", line)]


# ---------------------------------------------------------------- sentences


def test_a_report() -> None:
    log = read_one(["Starting benchmark...", *sentences()])
    assert (log.benchmark, log.case, log.outcome, log.findings) == ("torch", "all_reduce", Outcome.OK, ())
    assert log.facts == {"ranks": 16, "trials": 50, "complete": "unknown"}
    (point,) = log.points
    assert (point.size, point.labels) == (4_000_000_000, {})
    assert figures(point) == {"algbw": 239_742_000_000.0, "busbw": 449_516_000_000.0}


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        (sentences(blank=""), 4_000_000_000),
        (sentences(decimals=True), 4_000_000_000),
        (sentences(payload=17_179_869_184), 17_179_869_184),
        (sentences(payload=16_000), 16_000),
        (["2026-11-21 10:00:00 INFO " + sentences()[0], *sentences(blank="")[1:]], 4_000_000_000),
        ([*sentences()[:3], " CPU Usage: 3.10%", " GPU Memory Usage: 4.00 GB", ""], 4_000_000_000),
        (["1", "2", *sentences()[:1], "3", *sentences()[1:]], 4_000_000_000),
    ],
)
def test_variants(lines: list[str], size: int) -> None:
    log = read_one(lines)
    assert (log.outcome, [point.size for point in log.points]) == (Outcome.OK, [size])
    assert figures(log.points[0]) == figures(read_one(sentences()).points[0])


def test_a_payload_with_three_decimals_is_not_exact() -> None:
    (finding,) = read_one(sentences(payload=268_435_456, decimals=True)).findings
    assert (finding.code, finding.severity) == ("size-truncated", "note")
    assert read_one(sentences(payload=268_435_456)).findings == ()


def test_a_standard_deviation() -> None:
    log = read_one(sentences(52.186e9, ranks=8, stdev="0.013"))
    assert [(point.labels, point.metrics, point.values) for point in log.points] == [
        ({}, ("algbw", "busbw"), (52_186_000_000.0, 91_326_000_000.0)),
        ({"stat": "stdev"}, ("algbw",), (13_000_000.0,)),
    ]
    assert log.findings == ()


def test_several_reports_in_one_text() -> None:
    found = read_lines([*sentences(2.019e9, ranks=8), "```", "with the nccl plugin", *sentences(52e9, ranks=8)])
    assert [log.outcome for log in found] == [Outcome.OK, Outcome.OK]
    assert [figures(log.points[0])["algbw"] for log in found] == [2.019e9, 52e9]


def test_tables_one_after_another() -> None:
    alone = table(ROWS, sentence=False)
    assert [len(log.points) for log in read_lines([*alone, "", *alone])] == [len(ROWS)] * 2
    assert [len(log.points) for log in read_lines([*sentences(), *alone])] == [1, len(ROWS)]


def test_each_rank_that_reports_has_a_log() -> None:
    mixed = [f"[rank {rank}] {line}" for line in sentences() for rank in (0, 1)]
    assert [len(log.points) for log in read_lines(mixed)] == [1, 1]
    tagged = [f"[gke-a3-pool-2dc-j25n:0]:{line}" for line in sentences()]
    assert figures(read_one(tagged).points[0]) == figures(read_one(sentences()).points[0])


# ---------------------------------------------------------------- units


def test_bits_are_not_bytes() -> None:
    """What is printed in both must be the same."""
    log = read_one([line.replace("GBps", "Gbps") for line in sentences()])
    assert (log.outcome, log.points, len(log.damaged)) == (Outcome.TRUNCATED, [], 2)
    assert [finding.code for finding in log.findings] == ["rate-mismatch"]


@pytest.mark.parametrize(("unit", "size"), [("GB", 4 * 10**9), ("GiB", 4 << 30), ("MB", 4 * 10**6), ("MiB", 4 << 20)])
def test_the_payload_s_unit_decides(unit: str, size: int) -> None:
    lines = [sentences()[0].replace("GB payload", f"{unit} payload"), *sentences()[1:]]
    assert read_one(lines).points[0].size == size


def test_the_tables_of_january_2025_have_binary_rates() -> None:
    """Until 2025-01-22 the script printed KB and divided rates by 2^30; then KiB, and by 1e9."""
    new, old = table(ROWS), table(ROWS, old=True)
    renamed = [line.replace("iB |", "B |") for line in new]
    assert [point.size for point in read_one(renamed).points] == [size for size, _ in ROWS]
    for one, other in zip(read_one(new).points, read_one(renamed).points, strict=True):
        assert figures(other)["busbw"] == pytest.approx(figures(one)["busbw"] * 2**30 / 1e9, rel=1e-12)
    for (_, algbw), point in zip(ROWS, read_one(old).points, strict=True):
        assert figures(point)["algbw"] == pytest.approx(algbw, abs=0.0051 * 2**30)


@pytest.mark.parametrize(
    ("was", "becomes", "codes"),
    [
        ("449.516", "449.52", set()),
        ("239.742", "239.743", {"row-arithmetic"}),
        ("449.516", "450.516", {"rate-mismatch"}),
        ("3596.1", "3597.1", {"rate-mismatch"}),
        ("16 ranks", "8 ranks", {"row-arithmetic"}),
    ],
)
def test_figures_that_do_not_fit_are_damaged(was: str, becomes: str, codes: set[str]) -> None:
    log = read_one([line.replace(was, becomes) for line in sentences()])
    assert {finding.code for finding in log.findings} == codes
    assert (log.outcome, bool(log.damaged)) == ((Outcome.TRUNCATED, True) if codes else (Outcome.OK, False))


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("old", [False, True])
def test_every_row_is_read_exactly(*, old: bool) -> None:
    lines = table(ROWS, old=old)
    log = read_one(lines)
    assert (log.outcome, log.findings) == (Outcome.OK, ())
    assert log.facts == {"ranks": 16, "warmup": 5, "trials": 20, "complete": "unknown"}
    for (size, _), line, point in zip(ROWS, lines[4:], log.points, strict=True):
        busbw, algbw = rates(line, factor=2**30 if old else 10**9)
        assert (point.size, figures(point)) == (size, {"algbw": algbw, "busbw": busbw})


def test_columns_are_known_by_their_names() -> None:
    swapped = ["|".join(cells[i] for i in (0, 1, 3, 2, 4)) for cells in (line.split("|") for line in table(ROWS)[2:])]
    assert read_one(swapped).points == read_one(table(ROWS, sentence=False)).points


def test_a_table_alone() -> None:
    log = read_one(["## WORKING LIB", *table(ROWS, sentence=False), "", "wget https://example.org/x.tar.gz"])
    assert (log.case, log.outcome, len(log.points)) == ("all_reduce", Outcome.OK, len(ROWS))
    assert "ranks" not in log.facts


def test_a_profile_repeats_one_size() -> None:
    log = read_one(profile([240e9, 250e9, 240e9]))
    assert [point.size for point in log.points] == [1 << 29] * 3
    assert [figures(point)["algbw"] for point in log.points] == [240e9, 250e9, 240e9]
    without = read_one(profile([240e9])[2:])
    assert (without.outcome, [finding.code for finding in without.findings]) == (Outcome.TRUNCATED, ["size-unknown"])


def test_versions_and_the_way_of_timing() -> None:
    lines = [
        "Environment:",
        "- software: torch=2.9.1+cu130, cuda=13.0, nccl=(2, 27, 7)",
        "- hardware: _CudaDeviceProperties(name='NVIDIA H200')",
        table(ROWS)[0].replace("trials)", "trials, 1 call per trial, host overhead included)"),
        *table(ROWS)[1:],
    ]
    facts = read_one(lines).facts
    assert {name: facts[name] for name in ("torch", "cuda", "nccl", "method")} == {
        "torch": "2.9.1+cu130",
        "cuda": "13.0",
        "nccl": "2.27.7",
        "method": "1 call per trial, host overhead included",
    }


def test_latencies_of_one_call() -> None:
    trials = "at least 5 warmups / 20 trials, up to 10 queued calls per trial"
    lines = [
        f"The average bandwidth and the per-call latency of all_gather over 8 ranks ({trials}):",
        "",
        "| payload |    busbw   |    algbw   | latency median |    p99    |    mean   | calls |",
        "| ------: | ---------: | ---------: | -------------: | --------: | --------: | ----: |",
        "|    512B |            |            |         17.3us |    25.1us |    18.0us |  1000 |",
        "|    1MiB |  39.93GBps |  22.82GBps |         46.0us |    60.2us |    46.9us |   180 |",
    ]
    log = read_one(lines)
    assert (log.case, log.outcome, log.facts["method"]) == ("all_gather", Outcome.OK, "up to 10 queued calls per trial")
    assert [(point.size, point.labels, figures(point)) for point in log.points] == [
        (512, {"stat": "median"}, {"time": 17.3e-6}),
        (512, {"stat": "p99"}, {"time": 25.1e-6}),
        (512, {"stat": "mean"}, {"time": 18.0e-6}),
        (1 << 20, {}, {"algbw": 22.82e9, "busbw": 39.93e9}),
        (1 << 20, {"stat": "median"}, {"time": 46.0e-6}),
        (1 << 20, {"stat": "p99"}, {"time": 60.2e-6}),
        (1 << 20, {"stat": "mean"}, {"time": 46.9e-6}),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["| Node | busbw | algbw |", "| ---- | ----- | ----- |", "| a    | 1.00GBps | 2.00GBps |"],
        ["busbw: 3.533 GBps (28.3 Gbps)"],
        ["We look at the average bandwidth of all_reduce with care."],
        ["|   32KiB |   1.44GBps |   0.82GBps |"],
        ["RuntimeError: CUDA out of memory"],
        ["| payload | busbw |"],
        [HEADER[:-2]],
    ],
)
def test_what_only_resembles_is_no_report(lines: list[str]) -> None:
    assert read_lines(lines) == []


def test_another_table_below_is_not_read() -> None:
    other = ["", "| nodes | result |", "| ----- | ------ |", "| two   | 5.00GBps |", "| 2 | 4 | 8 |"]
    log = read_one([*table(ROWS), *other])
    assert (log.outcome, len(log.points), log.damaged) == (Outcome.OK, len(ROWS), ())


# ---------------------------------------------------------------- failures, evidence


def test_failures() -> None:
    error = "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:1, unhandled error"
    log = read_one([error])  # of any job
    assert (log.benchmark, log.outcome, log.reason) == (None, Outcome.FAILED, f"PyTorch reported: {error}")
    assert read_one([*sentences()[:1], "torch.OutOfMemoryError: CUDA out of memory."]).outcome is Outcome.FAILED
    assert read_one([*table(())[:1], "!!! No payload was measured !!!"]).outcome is Outcome.FAILED


def test_a_sweep_that_ran_out_of_memory() -> None:
    log = read_one([*table(ROWS), "", "!!! Stopped before 16GiB, which ran out of memory on some rank !!!"])
    assert (log.outcome, [finding.code for finding in log.findings]) == (Outcome.OK, ["range-reduced"])


def test_nccl_s_debug_text_around_it_is_the_evidence() -> None:
    debug = [
        "node0:100:100 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
        "node0:100:100 [0] NCCL INFO Using network Libfabric",
        "node0:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA",
    ]
    for form in (sentences(), table(ROWS)):
        assert read_one([*debug, *form], Proof(fabric="efa")).outcome is Outcome.OK
        assert read_one([*debug, *form], Proof(fabric="tcp")).outcome is Outcome.OFF_FABRIC
        assert read_one(form, Proof(fabric="efa")).outcome is Outcome.UNPROVEN


# ---------------------------------------------------------------- any report


def gigabytes() -> st.SearchStrategy[float]:
    return st.floats(1e7, 9e11)


@given(gigabytes(), st.integers(2, 4096), st.integers(1, 10**6), st.sampled_from([2000, 1, 17]))
def test_any_report_fits_itself(algbw: float, ranks: int, rows: int, columns: int) -> None:
    lines = sentences(algbw, ranks=ranks, payload=rows * columns * 4)
    log = read_one(lines)
    assert (log.outcome, log.findings if len(lines[0].split("GB")[0].rpartition(".")[2]) != 3 else ()) == (
        Outcome.OK,
        (),
    )
    assert log.points[0].size == rows * columns * 4
    assert figures(log.points[0]) == {"algbw": rates(lines[1])[0], "busbw": rates(lines[2])[0]}


NOISE = (
    "",
    "1",
    "  1GiB: 3",
    "Legend: 1KiB = 2**10 Bytes",
    "n0:1:1 [0] NCCL INFO Using network Socket",
    "W0000 x.cc:1] hi",
)
PREFIXES = (
    "",
    "[1,0]<stdout>:",
    "[rank 0] ",
    "[host-2-x:0]:",
    "2026-11-21T10:35:09.123456789Z ",
    "(head, rank=0, pid=12) ",
)


@given(
    st.lists(st.tuples(st.integers(15, 34).map(lambda power: 1 << power), gigabytes()), min_size=1, max_size=8),
    st.integers(2, 4096),
    st.booleans(),
    st.sampled_from(PREFIXES),
    st.data(),
)
def test_any_table_survives_prefixes_and_other_lines(
    rows: list[tuple[int, float]], ranks: int, old: bool, prefix: str, data: st.DataObject
) -> None:
    lines = table(rows, ranks=ranks, old=old)
    expected = read_one(lines)
    assert (expected.findings, len(expected.points)) == ((), len(rows))
    for noise in data.draw(st.lists(st.sampled_from(NOISE), max_size=4)):
        lines.insert(data.draw(st.integers(1, len(lines))), noise)
    log = read_one([prefix + line for line in lines])
    assert (log.points, log.damaged) == (expected.points, ())


@given(st.sampled_from([sentences(), table(ROWS), table(ROWS, old=True), profile([1e9, 2e9])]), st.data())
def test_any_report_cut_anywhere(lines: list[str], data: st.DataObject) -> None:
    """Rows are exact or reported: what is whole is read, and a report that is cut is no whole one."""
    complete = read_one(lines).points
    text = "\n".join(lines).rstrip()
    at = data.draw(st.integers(len(lines[0]), len(text)))
    log = read_one(text[:at].split("\n"))
    assert all(
        figures(found).items() <= figures(whole).items() for found, whole in zip(log.points, complete, strict=False)
    )
    last = text[:at].rpartition("\n")[2]
    cut = last not in lines and any(letter.isdigit() for letter in last)
    assert not cut or (log.outcome is Outcome.TRUNCATED and [damaged.text for damaged in log.damaged] == [last])
    assert (log.outcome is Outcome.OK) <= (len(log.points) > 0)
    if lines == sentences():
        assert (log.outcome is Outcome.OK) == (at == len(text))


def test_seeded_noise_invents_nothing() -> None:
    """Characters changed, lost and doubled: no exception, and no figure that is not in the text."""
    known = "\n".join([*sentences(stdev="0.013"), *table(ROWS), *profile([240e9])])
    row = re.compile(r"\|.*\|.*\||[ab][lu][gs]bw: ")
    for seed in range(300):
        source = random.Random(seed)
        letters = list(known)
        for _ in range(source.randint(1, 40)):
            at = source.randrange(len(letters))
            letters[at : at + source.randint(0, 2)] = source.choice(["", " ", "\n", "9", ".", "|", "i", "\x00", "("])
        text = "".join(letters)
        lines = text.split("\n")
        points = [point for log in read_lines(lines) for point in log.points]
        assert len(points) <= sum(bool(row.search(line)) for line in lines)
        digits = {float(Decimal(word)) for word in re.findall(r"\d+\.\d+", text)}
        for point in points:
            known_values = {value * factor for value in digits for factor in (1.0, 1e9, 2**30, 1.25e8)}
            assert all(min(abs(value - other) for other in known_values) <= 1e-9 * value for value in point.values)


@given(st.lists(st.text(max_size=80) | st.sampled_from([*sentences(), *table(ROWS)])))
def test_any_text_is_survived(lines: list[str]) -> None:
    rows = sum(line in {*sentences()[1:3], *table(ROWS)[4:]} for line in lines)
    assert sum(len(log.points) for log in read_lines(lines)) <= rows


def test_the_generator_prints_sizes_as_the_script() -> None:
    assert [fmt_bytes(size) for size in (32768, 1 << 20, 1 << 29, 1 << 34)] == ["32KiB", "1MiB", "512MiB", "16GiB"]
    assert table(ROWS)[2] == HEADER
