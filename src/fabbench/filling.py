"""Puts what is known only when a command runs into its words. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from fabbench.model import Command


def filled(command: Command, known: Mapping[str, str], folder: str) -> Command:
    """Fill in what is known only now: `known` replaces its keys, wherever they stand in argv."""
    values = {**known, "{folder}": folder}
    argv = tuple(_replaced(word, values) for word in command.argv)
    env = {name: value.replace("{folder}", folder) for name, value in command.env.items()}
    return replace(command, argv=argv, env=env)


def _replaced(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
