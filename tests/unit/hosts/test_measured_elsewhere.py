"""What is said of settings that were measured with something else than is here."""

import pytest

from fabbench.hosts.measured_elsewhere import measured_elsewhere

HERE = {"nodes": "2", "type": "p5.48xlarge", "GPU": "NVIDIA H100 80GB HBM3", "NCCL": "2.28.9"}


@pytest.mark.parametrize(
    "measured",
    [
        "nodes=2,type=p5.48xlarge,GPU=NVIDIA H100 80GB HBM3,NCCL=2.28.9",
        "GPU=H100",  # as the catalog names it
        "",
        "with care",
        "nodes=",
        "driver=580",
    ],
)
def test_what_is_the_same_or_not_known_is_not_said(measured: str) -> None:
    assert not measured_elsewhere("tuned.conf", measured, HERE)
    assert not measured_elsewhere("tuned.conf", measured, {})
    assert not measured_elsewhere("tuned.conf", measured, dict.fromkeys(HERE, ""))


@pytest.mark.parametrize(
    "measured",
    ["nodes=4", "nodes=22", "type=p4d.24xlarge", "GPU=A100", "GPU=NVIDIA H200", "NCCL=2.28.8"],
)
def test_what_differs_is_said_from_both_sides(measured: str) -> None:
    name, _, value = measured.partition("=")
    same = ",".join(f"{each}={HERE[each]}" for each in HERE if each != name)
    (sentence,) = {
        measured_elsewhere("tuned.conf", text, HERE)
        for text in (measured, f"{measured},{same}", f"{same},{measured}")
    }
    assert sentence.startswith("tuned.conf was measured with ")
    assert f"{name} {value}" in sentence
    assert f"here: {name} {HERE[name]}" in sentence
