"""What clusters and hosts say: an example shows its record, and the line beside it does not."""

import pytest

from fabbench.model.known_messages import KnownMessage, explain, known_messages

TABLES = (
    ("fabbench.launchers.kubernetes", "messages.toml"),
    ("fabbench.launchers.slurm", "job_errors.toml"),
    ("fabbench.remote", "failures.toml"),
)
KNOWN = [(table, each) for table in TABLES for each in known_messages(*table)]


@pytest.mark.parametrize(("table", "known"), KNOWN, ids=lambda each: getattr(each, "example", ""))
def test_a_message_is_explained_by_the_first_record_that_it_shows(
    table: tuple[str, str], known: KnownMessage
) -> None:
    on_this = [each for each in known_messages(*table) if each.on in {"", known.on}]
    assert next(each for each in on_this if each.match(known.example)) is known


@pytest.mark.parametrize(
    "known", [each for _, each in KNOWN if each.pattern], ids=lambda each: each.counterexample
)
def test_a_line_beside_a_message_does_not_show_its_record(known: KnownMessage) -> None:
    assert known.counterexample
    assert known.match(known.counterexample) is None


@pytest.mark.parametrize("table", TABLES, ids=lambda each: each[1])
def test_whatever_a_table_is_asked_about_is_explained(table: tuple[str, str]) -> None:
    records = known_messages(*table)
    for_all_others = {each.on for each in records if not each.pattern}
    assert {each.on for each in records} <= {"", *for_all_others}


def test_an_explanation_has_the_values_and_what_the_pattern_found() -> None:
    table = ("fabbench.launchers.kubernetes", "messages.toml")
    why = explain(*table, "unscheduled", "1 node had untolerated taint {team: ml}.", subject="A")
    assert why.text == "A: 1 node had untolerated taint {team: ml}."
    assert "--toleration team=ml." in why.advice
    why = explain(*table, "unscheduled", "1 node had untolerated taint {team: }", subject="A")
    assert "--toleration team." in why.advice
