"""Characters of any text, for hypothesis."""

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 has: what hypothesis takes by itself, but works out for seconds."""
