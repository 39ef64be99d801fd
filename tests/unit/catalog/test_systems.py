"""The catalog of systems."""

import pytest

from fabbench.catalog.systems import efa_reaches, instance, systems, types_with


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("p4d.24xlarge", (8, "A100", 4, 400)),
        ("p5.48xlarge", (8, "H100", 32, 3200)),
        ("p5en.48xlarge", (8, "H200", 16, 3200)),
        ("p6-b200.48xlarge", (8, "B200", 8, 3200)),
        ("p6-b300.48xlarge", (8, "B300", 16, 6400)),
        ("p6e-gb200.36xlarge", (4, "GB200", 16, 3200)),
        ("g6e.48xlarge", (8, "L40S", 4, 400)),
        ("hpc7a.96xlarge", (0, "", 2, 300)),
    ],
)
def test_the_types_that_matter_are_as_published(
    name: str, published: tuple[int, str, int, float]
) -> None:
    found = instance(name)
    assert found is not None
    facts = (found.gpus, found.gpu_model, found.most_nics, found.network_gbps)
    assert facts == published


def test_the_label_of_hyperpod_is_taken_off() -> None:
    assert instance("ml.p5.48xlarge") is instance("p5.48xlarge")


def test_a_type_without_efa_is_not_there() -> None:
    assert instance("t3.micro") is None
    assert instance("") is None


def test_every_row_has_a_network_and_interfaces() -> None:
    ec2 = {name: found for name, found in systems().items() if found.is_ec2}
    assert len(ec2) == 299
    for name, found in ec2.items():
        assert found.nics, name
        assert found.rate, name
        assert (found.gpus > 0) == bool(found.gpu_model), name
        assert found.arch in {"amd64", "arm64"}, name


def test_gb200_may_have_fewer_interfaces_and_less_bandwidth_than_it_could() -> None:
    found = systems()["p6e-gb200.36xlarge"]
    assert found.nics == (16, 4)
    assert found.rate == 1600e9 / 8
    assert systems()["p5.48xlarge"].nics == (32,)


@pytest.mark.parametrize(
    ("one", "other", "reaches"),
    [
        ("p4d.24xlarge", "p4de.24xlarge", True),
        ("p4d.24xlarge", "dl1.24xlarge", True),
        ("p4d.24xlarge", "p5.48xlarge", False),
        ("ml.p4d.24xlarge", "p4d.24xlarge", True),
        ("p5.48xlarge", "p5en.48xlarge", True),
    ],
)
def test_p4d_and_its_kin_reach_only_each_other(one: str, other: str, reaches: bool) -> None:
    assert efa_reaches(one, other) is reaches
    assert efa_reaches(other, one) is reaches


@pytest.mark.parametrize(
    ("gpu", "nics", "types"),
    [
        ("NVIDIA H100 80GB HBM3", 32, ["p5.48xlarge"]),
        ("NVIDIA H100 80GB HBM3", 16, []),
        ("NVIDIA H200", 32, ["p5e.48xlarge"]),
        ("NVIDIA H200", 16, ["p5en.48xlarge"]),
        ("NVIDIA A100-SXM4-40GB", 4, ["p4d.24xlarge"]),
        ("NVIDIA A100-SXM4-80GB", 4, ["p4de.24xlarge"]),
        ("NVIDIA A100", 4, ["p4d.24xlarge", "p4de.24xlarge"]),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 4, ["g7e.48xlarge"]),
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", 2, ["g7.48xlarge"]),
        ("NVIDIA GB200", 16, []),
        ("Tesla V100-SXM2-16GB", 1, []),
    ],
)
def test_gpus_and_nics_tell_types(gpu: str, nics: int, types: list[str]) -> None:
    assert types_with(frozenset({gpu}), 8, nics) == types
    assert types_with(frozenset({gpu, "NVIDIA B200"}), 8, nics) == []
