"""Columns of logs to a comparison: figures, ratios, gates, highlights, footnotes."""
