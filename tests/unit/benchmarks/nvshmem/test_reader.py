"""The NVSHMEM perftests' output in comparisons; its layouts and versions are in the corpus."""

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.runs.parse_file import parse_file
from tests.support.corpus import CORPUS


def test_three_tables_without_a_title_compare_as_one_table() -> None:
    names = [f"nvshmem/three-tables-without-a-title-compare-as-one-table-{number}.txt" for number in (1, 2, 3)]
    comparison = compare([Column(label=name, logs=tuple(parse_file(CORPUS / name)), source=name) for name in names])
    (section,) = comparison.sections
    assert [metric.name for metric in comparison.metrics] == ["busbw"]
    assert [row.size for row in section.rows] == [1 << power for power in range(7, 31)]
    assert {row.ratios[:2] for row in section.rows if row.size >= 1 << 20} == {(1.0, 1.0)}
