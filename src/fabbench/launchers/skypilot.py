"""The launcher ``skypilot``: a cluster that SkyPilot launches, one job for each execution."""

import contextlib
import importlib
import secrets
from collections.abc import Iterator
from dataclasses import replace

from fabbench.check import Around, Check, Status
from fabbench.errors import FabbenchError, RequestError
from fabbench.launchers import Examined, Progress
from fabbench.machines import Needs, Where
from fabbench.offline import inventory_of
from fabbench.rendering import rendering_named
from fabbench.skyapi.cluster import Cluster, Wish
from fabbench.skyapi.library import asking, sky
from fabbench.skyapi.place import SkyPlace
from fabbench.skypilot.infra import DEFAULT, Flavour, flavour
from fabbench.skypilot.task import image_in

_NODES = 2
_IDLE_MINUTES = 10


class SkyPilot:
    """The launcher ``skypilot``."""

    name = "skypilot"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[SkyPlace]:
        """Take the machines as the catalogue has them. Leaving it tears the cluster down.

        The cluster is launched when the plan is known.
        """
        wish = _wish(where)
        sky()
        instance_type = str(where.settings.get("instance_type") or "") or None
        inventory = inventory_of(instance_type, where.nodes or _NODES, where=where, needs=needs)
        image = image_in(str(where.settings.get("infra") or DEFAULT), where.settings)
        with Cluster(wish) as cluster:
            yield SkyPlace(replace(inventory, image=image), rendering_named(self.name), cluster)

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Ask SkyPilot whether it can use the place. Nothing is launched, so nothing is known of machines."""
        del needs, full
        infra = str(where.settings.get("infra") or DEFAULT)
        flavour(infra)
        progress("asking SkyPilot", 0, 1)
        return Examined(probes={}, around=Around(), checks=tuple(_checks(infra)))


LAUNCHER = SkyPilot()


def _wish(where: Where) -> Wish:
    """Say what the cluster is to be. Raises RequestError for what does not go together."""
    settings = where.settings
    if where.hosts:
        raise RequestError(
            "SkyPilot chooses the machines: --host means nothing to it.", hint="--nodes says how many."
        )
    keep, idle = bool(settings.get("keep")), settings.get("idle_minutes")
    if flavour(str(settings.get("infra") or DEFAULT)) is Flavour.SLURM:
        if idle is not None:
            raise RequestError(
                "SkyPilot tears down no idle clusters on Slurm.", hint="Leave --idle-minutes out."
            )
    elif idle is None and not keep:
        idle = _IDLE_MINUTES
    name = str(settings.get("cluster_name") or f"fabbench-{secrets.token_hex(2)}")
    start = settings.get("start_timeout")
    return Wish(
        name=name,
        idle_minutes=None if idle is None else int(idle),
        keep=keep,
        start_s=None if start is None else float(start),
    )


def _checks(infra: str) -> Iterator[Check]:
    """Say whether SkyPilot is there, and what it can use."""
    try:
        library = sky()
    except FabbenchError as error:
        advice = error.hint or "Install it."
        yield Check(host="skypilot", name="library", status=Status.FAIL, seen=str(error), advice=advice)
        return
    seen = f"SkyPilot {library.__version__}."
    yield Check(host="skypilot", name="library", status=Status.PASS, seen=seen)
    cloud = infra.partition("/")[0]
    try:
        with asking(f"SkyPilot cannot check {cloud}") as library:
            # The name sky.check is that of a module.
            sdk = importlib.import_module("sky.client.sdk")
            found = library.get(sdk.check((cloud,), verbose=False))
    except FabbenchError as error:
        advice = "See what sky check says."
        yield Check(host="skypilot", name="place", status=Status.FAIL, seen=str(error), advice=advice)
        return
    enabled = any(clouds for clouds in found.values())
    advice = "" if enabled else f"sky check {cloud} says what is missing."
    status = Status.PASS if enabled else Status.FAIL
    seen = f"{infra}: {'enabled' if enabled else 'not enabled'}."
    yield Check(host="skypilot", name="place", status=status, seen=seen, advice=advice)
