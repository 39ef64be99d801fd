"""What counts as a secret, and what is left of a document that has one."""

import pytest

from fabbench.model.messages import (
    REDACTED,
    is_secret,
    one_line,
    printable,
    redacted,
    redacted_values,
    without_secrets,
    word,
)
from fabbench.model.plan import Command, Variant
from tests.support.payloads import OBEYED, PAYLOADS

SECRET = (
    *("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "OPENAI_API_KEY", "APIKEY"),
    *("OPENAI_APIKEY", "MYSQL_PWD", "DB_PASSWORD", "DB_PASS", "Authorization", "X-Api-Key", "GITHUB_PAT"),
    *(
        "MY_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SENTRY_DSN",
        "SESSION_COOKIE",
        "KEY",
        "SSH_PRIVATE_KEY",
        "AUTHORIZATION",
        "OAUTH",
        "SSH_AUTH_SOCK_TOKEN",
    ),
    *("OTP", "TOTP", "USER_OTP_CODE", "PIN", "CARD_PIN", "PIN_CODE", "SALT", "PASSWORDLESS_SALT", "LICENSE"),
    *("MY_LICENCE", "SLACK_WEBHOOK", "WEBHOOK_URL", "sig"),
)
PLAIN = (
    *("PWD", "OLDPWD", "PATH", "MONKEY", "KEYBOARD", "COMPASS", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("SSH_AUTH_SOCK", "AWS_SHARED_CREDENTIALS_FILE", "HF_TOKEN_PATH", "SECRETS_DIR", "XAUTHORITY"),
    *("GIT_AUTHOR_NAME", "TOKENIZERS_PARALLELISM", "I_MPI_PIN", "I_MPI_PIN_DOMAIN", "PIN_MEMORY", "SPIN"),
    *("LM_LICENSE_FILE", "MAPPING", "BASALT", "SIGNAL", "OPTIONS"),
    *("NCCL_IB_PKEY", "NCCL_NET", "FI_PROVIDER", "OMP_NUM_THREADS", "LD_LIBRARY_PATH"),
)


def test_names() -> None:
    assert [name for name in SECRET if not is_secret(name)] == []
    assert [name for name in PLAIN if is_secret(name)] == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgres://user:p/w@host/db", f"postgres://{REDACTED}@host/db"),
        ("https://token@github.com/x", f"https://{REDACTED}@github.com/x"),
        ("see http://a:b@c:1 and https://d:e@f", f"see http://{REDACTED}@c:1 and https://{REDACTED}@f"),
        ("https://h/x?a=1&api_key=abc&b=1", f"https://h/x?a=1&api_key={REDACTED}&b=1"),
        ("https://hooks.slack.com/services/T0/B0/XX", f"https://hooks.slack.com/{REDACTED}"),
        ("https://discord.com/api/webhooks/12/abc", f"https://discord.com/api/webhooks/{REDACTED}"),
        ("'https://a.webhook.office.com/webhookb2/G@G/X/a' y", f"'https://a.webhook.office.com/{REDACTED} y"),
        ("https://mm.example.com/hooks/key?x=1", f"https://mm.example.com/hooks/{REDACTED}?x=1"),
        ("https://api.telegram.org/bot1:A/sendMessage", f"https://api.telegram.org/bot{REDACTED}"),
        (
            "https://x.logic.azure.com/w/1/invoke?sv=1&sig=a",
            f"https://x.logic.azure.com/w/1/invoke?sv=1&sig={REDACTED}",
        ),
        ("/etc/git/hooks/x https://h/robots/1:2", "/etc/git/hooks/x https://h/robots/1:2"),
        ("Bearer abcdefghijkl", f"Bearer {REDACTED}"),
        ("ssh://me@host, git@github.com:x/y", "ssh://me@host, git@github.com:x/y"),
    ],
)
def test_texts(text: str, left: str) -> None:
    assert without_secrets(text) == left
    assert without_secrets(left) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("HF_TOKEN=a b\nc", f"HF_TOKEN={REDACTED}"),
        ("--password=x", f"--password={REDACTED}"),
        ("Authorization: Basic abc", f"Authorization: {REDACTED}"),
        ("NCCL_DEBUG=INFO", "NCCL_DEBUG=INFO"),
        ("http_proxy=http://a:b@c", f"http_proxy=http://{REDACTED}@c"),
    ],
)
def test_words(text: str, left: str) -> None:
    assert word(text) == left


@pytest.mark.parametrize(
    "value", ["plain", "a b", "-----BEGIN-----\nx\n-----END-----", "a$$b", "it's", '"q"', "\t", "\x07", "\u2028"]
)
def test_nothing_of_a_value_is_left(value: str) -> None:
    secret = f"S3CRET{value}S3CRET"
    document = {"env": {"MY_TOKEN": secret, "A": "1"}, "argv": [f"MY_TOKEN={secret}"], "deep": [{"env": {}}]}
    left = redacted(document)
    assert "S3CRET" not in str(left)
    assert left["env"]["A"] == "1"
    command = Command(argv=("env", f"MY_TOKEN={secret}", "x"), env={"MY_TOKEN": secret, "A": "1"})
    variant = Variant(name="v", env={"MY_TOKEN": secret})
    hidden = redacted_values((command, variant))
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
    assert printable("na\u00efve \u2013 \u65e5\u672c \U0001f600") == "na\u00efve \u2013 \u65e5\u672c \U0001f600"
