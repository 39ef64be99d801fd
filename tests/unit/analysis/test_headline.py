"""The result in one line, and what stands out: as golden sentences.

Their laws are in test_highlights.py.
"""

import json
from collections.abc import Sequence

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import highlights
from fabbench.model.log import Outcome
from tests.support.golden import GOLDEN, assert_golden
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates
from tests.support.nccl_text import EFA, NON_EFA, SIZES

PUBLISHED = [
    rates(name, zip(SIZES, values, strict=True))
    for name, values in (("EFA", EFA), ("TCP", NON_EFA))
]
OFF = column("efa", log([(GB, 12.5e9)], outcome=Outcome.OFF_FABRIC, reason="It was not efa."))


def several(**figures: Sequence[float]) -> list[Column]:
    """Make a column of several executions at 1 KB, for each name."""
    return [
        column(name, *(log([(KB, rate * 1e9)]) for rate in rates_))
        for name, rates_ in figures.items()
    ]


def moving(name: str, rate: float) -> Column:
    """Make a column of three executions of one mean, whose sizes move against each other."""
    parts = ((0.94, 1.0, 1.06), (1.0, 1.06, 0.94), (1.06, 0.94, 1.0))
    sizes = (MB, 4 * MB, GB)
    return column(
        name,
        *(
            log([(size, 1e9 * rate * part) for size, part in zip(sizes, of_log, strict=True)])
            for of_log in parts
        ),
    )


CASES = {
    "published": PUBLISHED,
    "published, turned round": PUBLISHED[::-1],
    "one column": PUBLISHED[:1],
    "faster, then slower": [
        rates("a", [(MB, 4), (GB, 1)], hosts=1),
        rates("b", [(MB, 2), (GB, 2)], hosts=1),
    ],
    "undecided at the end": [
        rates("a", [(MB, 8), (GB, 2.1)], hosts=1),
        rates("b", [(MB, 2), (GB, 2)], hosts=1),
    ],
    "undecided between": [
        latencies("a", [(64, 10), (512, 11), (KB, 13), (4 * KB, 40)]),
        latencies("b", [(64, 2), (512, 2.1), (KB, 12), (4 * KB, 5)]),
    ],
    "a plateau whose sizes are undecided": [moving("a", 0.9), moving("b", 1.0)],
    "a size that one lacks": [rates("a", [(MB, 2), (GB, 9)]), rates("b", [(MB, 2)])],
    "times": [latencies("shm", [(64, 1), (KB, 2)]), latencies("tcp", [(64, 10), (KB, 20)])],
    "many columns": [
        rates(name, [(8, rate)], gpus_per_host="")
        for name, rate in zip("abcde", (80, 6, 4, 2, 1), strict=True)
    ],
    "in part measured once": [
        column(
            name,
            *(log([(MB, rate), *([(GB, rate)] if number == 0 else [])]) for number, rate in each),
        )
        for name, each in (("a", enumerate((9e9, 9.1e9))), ("b", enumerate((1e9, 1.1e9))))
    ],
    "off its fabric": [OFF, PUBLISHED[1]],
    "nothing but failures": [OFF],
    "zero of both": [rates("a", [(8, 0)]), rates("b", [(8, 0)])],
    "zero of one": [rates("a", [(8, 1)]), rates("b", [(8, 0)])],
    "repeats that overlap": several(a=(2, 9), b=(1, 3)),
    # Rows of one execution are no repeats.
    "rows of one execution": [
        column("a", log([(8, 2e9), (8, 9e9)])),
        column("b", log([(8, 1e9), (8, 3e9)])),
    ],
    **{
        f"repeats at {factor}": several(
            a=[factor * part for part in (1.0, 1.01, 0.99)], b=(1.0, 1.01, 0.99)
        )
        for factor in (0.7, 1.5, 0.014, 1.01)
    },
}


def test_sentences_are_as_recorded() -> None:
    found = {}
    for name, columns in CASES.items():
        comparison = compare(columns)
        remarks = [f"{each.span}: {each.text}" for each in highlights(comparison)]
        found[name] = {"headline": headline(comparison, 0), "stands out": remarks}
    assert_golden(GOLDEN / "sentences.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
