"""`fabbench mcp --allow-run` of a target of hosts that are reached over ssh."""

import asyncio

import pytest
from mcp import Client

from fabbench.model.errors import Exit
from tests.support.host_fixtures import Labs
from tests.support.local_runs import eventually, rows
from tests.support.mcp_client import answered, session
from tests.support.paths import EXAMPLES
from tests.support.ssh_runs import STORE, nothing_left

pytestmark = pytest.mark.lab

QUICK = {"benchmark": "pingpong", "fabric": "tcp", "size": "64"}
LONG = {"benchmark": "pingpong", "fabric": "tcp", "size": ["64", "64M"]}


def test_a_run_on_hosts_leaves_nothing_there_also_if_it_is_cancelled(lab: Labs) -> None:
    site = lab(2)
    names = [host.name for host in site.hosts]
    file = site.folder / "agents.yaml"
    file.write_text(
        f"targets: {{pair: {{launcher: ssh, hosts: {names}}}}}\n"
        "defaults: {run: {pingpong: {iterations: 4000}}}\n"
    )
    store = site.path(STORE)

    async def use(client: Client) -> None:
        shown = await answered(client, **QUICK)
        assert shown["status"] == Exit.FINE, shown
        assert all(name in shown["result"]["text"] for name in names)
        done = await answered(client, **QUICK, token=shown["result"]["token"])
        assert (done["status"], done["result"]["format"]) == (Exit.FINE, 1), done
        before = len(rows(store))
        shown = await answered(client, **LONG)
        calling = asyncio.create_task(
            answered(client, **LONG, token=shown["result"]["token"]), name="run"
        )
        await asyncio.to_thread(eventually, lambda: rows(store)[before:] or calling.done())
        assert not calling.done(), calling
        calling.cancel()

    options = ("--allow-run=pair", f"--store={STORE}")
    with nothing_left(site):
        session(EXAMPLES, use, *options, lab=site, FABBENCH_CONFIG=str(file))
