"""harmless.toml and plugins.toml: what a message says, and others beside it."""

import pytest

from fabbench.evidence.known_errors import (
    HarmlessWarning,
    PluginMessage,
    harmless_warnings,
    is_harmless,
    is_of_gin,
    plugin_gave_up,
    plugin_messages,
)


@pytest.mark.parametrize("warning", harmless_warnings(), ids=lambda each: each.pattern)
def test_a_harmless_warning_is_known_and_the_one_beside_it_is_none(
    warning: HarmlessWarning,
) -> None:
    assert is_harmless(warning.example)
    assert not is_harmless(warning.counterexample)


@pytest.mark.parametrize("message", plugin_messages(), ids=lambda each: each.pattern)
def test_a_plugins_message_is_known_and_the_one_beside_it_is_none(message: PluginMessage) -> None:
    shows = plugin_gave_up if message.says == "gave up" else is_of_gin
    assert shows(message.example)
    assert not shows(message.counterexample)
