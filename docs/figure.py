"""Draw docs/efa-against-tcp.svg from the published numbers in examples/logs: `make reference`."""  # noqa: INP001 - a script

from pathlib import Path

from fabbench.analysis.compare import compare
from fabbench.model.log import Proof
from fabbench.report.svg import plots, to_svg_file
from fabbench.runs.load_columns import load

HERE = Path(__file__).parent
LOGS = HERE.parent / "examples/logs"
FIGURE = HERE / "efa-against-tcp.svg"


def figure() -> str:
    """Return the figure, with the numbers as `fabbench` reads them."""
    logs = [LOGS / f"published-p4d-{name}.txt" for name in ("efa", "tcp")]
    known = Proof(instance_type="p4d.24xlarge", nodes=2)
    comparison = compare(load(*logs, labels=("EFA", "TCP"), fabrics=("efa", "tcp"), known=known))
    (plot,) = plots(comparison)
    best = comparison.sections[0].rows[-1]
    title = f"EFA against TCP: {best.ratios[0]:.1f}x at 2 GB"
    axis = "NCCL all_reduce on 2 × p4d.24xlarge, published by SkyPilot: busbw (GB/s)"
    first, *_ = plot.drawn
    values, *changes = first["panels"]
    panels = [values._replace(content=values.content._replace(caption=axis)), *changes]
    drawn = [{**first, "panels": panels}]
    return to_svg_file([plot._replace(title=title, headline=title, drawn=drawn)])


if __name__ == "__main__":
    FIGURE.write_text(figure(), "utf-8")
