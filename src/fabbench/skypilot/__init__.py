"""Tasks of SkyPilot, without SkyPilot: what its YAML says, and what is wrong with it. Pure.

The library itself is `sky`; only `fabbench.skyapi` imports it.
"""
