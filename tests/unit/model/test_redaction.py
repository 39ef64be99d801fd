"""What counts as a secret, and what is left of a document that has one."""

import json

import pytest

from fabbench.model.messages import (
    is_secret,
    one_line,
    printable,
    redacted,
    without_secrets,
    word_without_secrets,
)
from fabbench.model.plan import Command, Variant
from tests.support.paths import DATA
from tests.support.payloads import OBEYED, PAYLOADS

KNOWN = json.loads((DATA / "redaction.json").read_text("utf-8"))
SECRET = KNOWN["secret"]
PLAIN = KNOWN["plain"]


def test_names() -> None:
    assert [name for name in SECRET if not is_secret(name)] == []
    assert [name for name in PLAIN if is_secret(name)] == []


@pytest.mark.parametrize(("text", "left"), KNOWN["texts"])
def test_texts(text: str, left: str) -> None:
    assert without_secrets(text) == left
    assert without_secrets(left) == left


@pytest.mark.parametrize(("text", "left"), KNOWN["words"])
def test_words(text: str, left: str) -> None:
    assert word_without_secrets(text) == left


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "a b",
        "-----BEGIN-----\nx\n-----END-----",
        "a$$b",
        "it's",
        '"q"',
        "\t",
        "\x07",
        "\u2028",
    ],
)
def test_nothing_of_a_value_is_left(value: str) -> None:
    secret = f"S3CRET{value}S3CRET"
    document = {
        "env": {"MY_TOKEN": secret, "A": "1"},
        "argv": [f"MY_TOKEN={secret}"],
        "deep": [{"env": {}}],
    }
    left = redacted(document)
    assert "S3CRET" not in str(left)
    assert left["env"]["A"] == "1"
    command = Command(argv=("env", f"MY_TOKEN={secret}", "x"), env={"MY_TOKEN": secret, "A": "1"})
    variant = Variant(name="v", env={"MY_TOKEN": secret})
    hidden = redacted((command, variant))
    assert "S3CRET" not in str(hidden)
    assert hidden[0].env["A"] == "1"
    assert "S3CRET" not in str(variant)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_text_that_is_printable_stays_so(payload: str) -> None:
    text = printable(payload)
    assert not OBEYED.findall(text)
    assert printable(text) == text
    assert "\n" not in one_line(f"a\n{payload}\r\nb")


def test_colours_are_left_out_and_lines_stay() -> None:
    assert printable("\x1b[1;31mred\x1b[0m\tx\r\ny\n") == "red\tx\ny\n"
    assert (
        printable("na\u00efve \u2013 \u65e5\u672c \U0001f600")
        == "na\u00efve \u2013 \u65e5\u672c \U0001f600"
    )
