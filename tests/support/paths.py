"""Where things are in this checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT / "tests/data"
LOGS = DATA / "logs"
"""Recorded logs; their origin is stated beside them."""
FAKE_PROGRAMS = ROOT / "tests/support/fake_programs"
"""Whole programs that play recordings, by what they stand in for."""
