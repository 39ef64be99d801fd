"""The arms of a tune: sets of fabbench's own, and files."""

from pathlib import Path

import pytest

from fabbench.model.errors import RequestError
from fabbench.plan.arms import arms_of


@pytest.mark.parametrize(
    ("name", "benchmark", "count"),
    [("basic", "nccl", 6), ("full", "torch", 18), ("osu", "osu", 4)],
)
def test_sets(name: str, benchmark: str, count: int) -> None:
    assert len(arms_of(name, benchmark)) == len(arms_of(name, benchmark, "efa")) == count


def test_arms_that_have_an_effect_on_some_fabrics_need_one_of_them() -> None:
    for fabric in ("tcp", "ofi-tcp"):
        assert len(arms_of("pingpong", "pingpong", fabric)) == 6
    for fabric in ("shm", "efa", ""):
        with pytest.raises(RequestError) as refused:
            arms_of("pingpong", "pingpong", fabric)
        assert "--fabric" in (refused.value.hint or "")


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "arms.toml"
    file.write_text('[[arms]]\nname = "a"\nenv = {A = "1"}', "utf-8-sig")
    assert len(arms_of(str(file), "nccl")) == 1


def test_full_fixes_the_number_of_channels() -> None:
    (arm,) = [each for each in arms_of("full", "nccl") if each.name == "tree-ll128-16"]
    assert arm.env == {
        "NCCL_ALGO": "TREE",
        "NCCL_PROTO": "LL128",
        "NCCL_MIN_NCHANNELS": "16",
        "NCCL_MAX_NCHANNELS": "16",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[arms]]\nname = "tcp"\nenv = {A = "1"}', "'tcp' is not a valid variant name"),
        ('[[arms]]\nname = "a"\nenv = {"A-B" = "1"}', "arms.toml:1: Expected `str` matching"),
        ('[[arms]]\nname = "a"\nenv = {A = 1}', "arms.toml:1: Expected `str`"),
        ('[[arms]]\nname = "a"', "arms.toml:1: Object missing required field `env`"),
        ('[[arms]]\nname = "a"\nenv = {}', "arms.toml:1: Expected `object` of length >= 1"),
        ("[[arms", "arms.toml:"),
        ("arms = 1", "arms.toml: "),
        ("", "has no variants for nccl"),
        ("arms = []", "has no variants for nccl"),
        ('[[arms]]\nname = "default"\nenv = {A = "1"}', "or default"),
        ('[[arms]]\nname = "a"\nenv = {A = "1"}\n' * 2, "a name twice"),
        ('[[arms]]\nname = "a"\nenv = {A = "1"}\nbenchmarks = ["osu"]', "has no variants for nccl"),
    ],
)
def test_a_wrong_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "arms.toml"
    file.write_text(text)
    with pytest.raises(RequestError, match=words):
        arms_of(str(file), "nccl")


@pytest.mark.parametrize(
    ("given", "benchmark"), [("basik", "nccl"), ("no.toml", "nccl"), ("efa", "osu")]
)
def test_what_is_not_there_is_refused(given: str, benchmark: str) -> None:
    with pytest.raises(RequestError):
        arms_of(given, benchmark)
