"""A request and an inventory to a plan: configurations, repeats, steps."""

from pathlib import Path

STORE = Path("fabbench-runs")  # Default directory of stored runs
