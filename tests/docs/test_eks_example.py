"""examples/eks-efa against the schemas of eksctl and Terraform's providers, offline."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import hcl2
import jsonschema
import pytest
import yaml

from fabbench.catalog.systems import instance
from tests.support.paths import DATA, EXAMPLES
from tests.support.syntax import text_of

EXAMPLE = EXAMPLES / "eks-efa"
ANYWHERE = {"count", "depends_on", "for_each", "lifecycle", "provider"}
"""Arguments of every resource, which are Terraform's own."""
REFERENCE = re.compile(
    r"(?<![\w.\"-])((?:data\.)?(?:aws|helm)_\w+\.\w+)(?:\[[^\]]*\])?(?:\.(\w+))?"
)


def cluster(file: str = "cluster.yaml") -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLE / file).read_text("utf-8"))
    return loaded


def node_group() -> dict[str, Any]:
    (group,) = cluster()["managedNodeGroups"]
    assert isinstance(group, dict)
    return group


def eksctl() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(
        json.loads((DATA / "eks/eksctl.schema.json").read_text("utf-8"))
    )


# ---------------------------------------------------------------- Terraform's files, as values


def plain(value: Any) -> Any:
    """Return what python-hcl2 read without the quotes of strings, and without comments."""
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items() if key != "__comments__"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value[1:-1] if isinstance(value, str) and value.startswith('"') else value


def terraform(replaced: str = "", by: str = "") -> dict[str, dict[str, Any]]:
    """Return all blocks by their addresses: "aws_vpc.this", "data.…", "var.…", "provider.…"."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((EXAMPLE / "terraform").glob("*.tf")):
        for kind, blocks in parsed(
            text_of(path).replace(replaced, by) if replaced else text_of(path)
        ).items():
            for block in blocks:
                found |= addressed(kind, block)
    return found


@cache
def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = plain(hcl2.loads(text))
    return found


def addressed(kind: str, block: dict[str, Any]) -> dict[str, dict[str, Any]]:
    prefix = {"resource": "", "data": "data.", "variable": "var.", "locals": "local."}.get(
        kind, f"{kind}."
    )
    if kind == "locals":
        return {
            f"{prefix}{name}": {"value": value}
            for name, value in block.items()
            if name != "__is_block__"
        }
    if kind in ("resource", "data"):
        return {
            f"{prefix}{type_}.{name}": body
            for type_, named in block.items()
            for name, body in named.items()
        }
    return {f"{prefix}{name}": body for name, body in block.items() if isinstance(body, dict)}


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


# ---------------------------------------------------------------- what the providers accept


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of every block that the example may have, by its address's words."""
    providers = json.loads((DATA / "eks/terraform-providers.schema.json").read_text("utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for source, provider in providers["provider_schemas"].items():
        found[f"provider.{source.rpartition('/')[2]}"] = provider["provider"]["block"]
        found |= {name: each["block"] for name, each in provider["resource_schemas"].items()}
        found |= {
            f"data.{name}": each["block"] for name, each in provider["data_source_schemas"].items()
        }
    return found


def schema_of(address: str) -> dict[str, Any] | None:
    return schemas().get(address) or schemas().get(address.rpartition(".")[0])


def faults(where: str, schema: dict[str, Any], body: dict[str, Any]) -> Iterator[str]:
    attributes, blocks = schema.get("attributes", {}), schema.get("block_types", {})
    for name, value in body.items():
        if name == "__is_block__" or name in ANYWHERE:
            continue
        if name in blocks:
            for each in value:
                yield from faults(f"{where}.{name}", blocks[name]["block"], each)
        elif name not in attributes:
            yield f"{where}: there is no {name}"
        elif nested := attributes[name].get("nested_type"):
            yield from faults(f"{where}.{name}", nested, value)
        elif not {"required", "optional"} & attributes[name].keys():
            yield f"{where}: {name} cannot be set"
    needed = {name for name, each in attributes.items() if each.get("required")}
    needed |= {name for name, each in blocks.items() if each.get("min_items")}
    yield from (f"{where}: needs {name}" for name in sorted(needed - body.keys()))


def dangling(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    for where, body in found.items():
        for text in strings(body):
            for name in re.findall(r"\b(?:var|local)\.\w+", text):
                if name not in found:
                    yield f"{where}: {name} is not declared"
            for address, attribute in REFERENCE.findall(text):
                schema = schema_of(address) or {}
                known = {**schema.get("attributes", {}), **schema.get("block_types", {})}
                if address not in found or (attribute and attribute not in known):
                    yield f"{where}: there is no {address}.{attribute}"


def all_faults(found: dict[str, dict[str, Any]]) -> list[str]:
    seen = [*dangling(found)]
    for address, body in found.items():
        if address.split(".")[0] not in ("var", "local", "output", "terraform"):
            schema = schema_of(address)
            seen += (
                [f"{address}: no such type"] if schema is None else faults(address, schema, body)
            )
    return seen


# ---------------------------------------------------------------- tests


@pytest.mark.parametrize("file", ["cluster.yaml", "private.yaml"])
def test_eksctl_knows_every_field_of_the_cluster(file: str) -> None:
    assert not [each.message for each in eksctl().iter_errors(cluster(file))]


def test_the_private_cluster_differs_in_its_network_and_system_only() -> None:
    public, private = cluster(), cluster("private.yaml")
    assert {**private, "vpc": 0, "managedNodeGroups": 0} == {
        **public,
        "vpc": 0,
        "managedNodeGroups": 0,
    }
    (group,) = private["managedNodeGroups"]
    shared = node_group().keys() & group.keys() - {"amiFamily"}
    assert {name: group[name] for name in shared} == {name: node_group()[name] for name in shared}
    assert (private["vpc"]["nat"]["gateway"], group["privateNetworking"]) == ("Single", True)
    page = (EXAMPLE / "README.md").read_text("utf-8")
    assert group["ssh"]["publicKeyPath"].removesuffix(".pub") in page


@pytest.mark.parametrize(
    "fault", [{"efaEnable": True}, {"efaEnabled": "yes"}, {"amiFamily": "Debian"}, {"minSize": "2"}]
)
def test_the_schema_of_eksctl_finds_faults(fault: dict[str, object]) -> None:
    wrong = {**cluster(), "managedNodeGroups": [{**node_group(), **fault}]}
    assert not eksctl().is_valid(wrong)


def test_the_providers_know_every_argument_of_the_terraform_files() -> None:
    found = terraform()
    assert {
        "aws_eks_cluster.this",
        "data.aws_iam_policy_document.assume",
        "var.nodes",
        "local.zone",
    } <= {*found}
    assert not all_faults(found)


@pytest.mark.parametrize(
    ("good", "bad", "said"), json.loads((DATA / "eks/terraform-faults.json").read_text("utf-8"))
)
def test_the_check_of_the_terraform_files_finds_faults(good: str, bad: str, said: str) -> None:
    assert said in all_faults(terraform(good, bad))


def test_terraform_has_what_efa_needs() -> None:
    found = terraform()
    template = found["aws_launch_template.efa"]
    (interface,), (placement,) = template["network_interfaces"], template["placement"]
    assert interface["interface_type"] == "efa"
    assert "${aws_security_group.efa.id}" in interface["security_groups"]
    assert placement["group_name"] == "${aws_placement_group.efa.name}"
    assert found["aws_placement_group.efa"]["strategy"] == "cluster"
    for rule in ("ingress_rule.efa_from_itself", "egress_rule.efa_to_itself"):
        body = found[f"aws_vpc_security_group_{rule}"]
        assert body["ip_protocol"] == "-1"
        assert (
            body["security_group_id"]
            == body["referenced_security_group_id"]
            == "${aws_security_group.efa.id}"
        )
    assert "vm.nr_hugepages" in template["user_data"]
    assert "var.huge_pages" in template["user_data"]
    assert found["helm_release.efa_device_plugin"]["chart"] == "aws-efa-k8s-device-plugin"
    assert found["aws_eks_node_group.efa"]["subnet_ids"] == ['${aws_subnet.public["nodes"].id}']


def test_both_make_the_same_cluster() -> None:
    found, group, meta = terraform(), node_group(), cluster()["metadata"]
    (disk,) = found["aws_launch_template.efa"]["block_device_mappings"]
    assert (disk["device_name"], disk["ebs"][0]["volume_size"]) == (
        group["volumeName"],
        group["volumeSize"],
    )
    default = {name: body["default"] for name, body in found.items() if "default" in body}
    assert group["efaEnabled"] is True
    assert len(group["availabilityZones"]) == 1
    settings = group["bottlerocket"]["settings"]["kernel"]["sysctl"]
    assert default == {
        "var.name": meta["name"],
        "var.region": meta["region"],
        "var.kubernetes_version": meta["version"],
        "var.instance_type": group["instanceType"],
        "var.nodes": group["desiredCapacity"],
        "var.huge_pages": int(settings["vm.nr_hugepages"]),
    }
    known = instance(group["instanceType"])
    assert known
    assert known.nics == (1,)


def test_the_walk_through_names_what_the_files_make() -> None:
    page = (EXAMPLE / "README.md").read_text("utf-8")
    meta = cluster()["metadata"]
    assert f"--name {meta['name']} --region {meta['region']}" in page
    assert f"Values={node_group()['instanceType']}" in page
    addresses = {name for name in terraform() if name.startswith(("aws_", "helm_"))}
    named = set(re.findall(r"`((?:aws|helm)_\w+\.\w+)", page))
    assert named
    assert named <= addresses
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", page)
    assert all(Path(EXAMPLE / each).exists() for each in linked)
