"""Pods of several images on the same nodes, one after the other: for variants with images of their own.

The devices of a node are for one pod at a time. So the pods end, and others are started, whenever an arm's
image is not the one of the arm before.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from fabbench.launchers import Place
from fabbench.machines import Inventory, Where
from fabbench.model import Ending, Trial
from fabbench.rendering import Job

Start = Callable[[Where], contextlib.AbstractContextManager[Place]]
"""Starts pods, and looks what they have; leaving the context ends them."""


@contextlib.contextmanager
def by_image(where: Where, start: Start) -> Iterator[Place]:
    """Give pods of the image of each arm. Every image is started once before anything is measured."""
    images = tuple(dict.fromkeys(variant.image for variant in where.variants)) or ("",)
    if len(images) == 1:
        with start(_of(where, images[0])) as place:
            yield place
        return
    with contextlib.ExitStack() as stack:
        pods = _Changing(where, start, stack)
        # The one of the first trial comes last.
        found = [pods.be(image).inventory for image in reversed(images)]
        views = {name: hosts for each in found for name, hosts in each.variants.items()}
        in_order = {variant.name: views[variant.name] for variant in where.variants}
        own = next((each.image for image, each in zip(reversed(images), found, strict=True) if not image), "")
        pods.inventory = replace(found[-1], image=own, variants=in_order)
        yield pods


class _Changing:
    """Pods whose image changes; see `fabbench.launchers.Place`."""

    remote = True

    def __init__(self, where: Where, start: Start, stack: contextlib.ExitStack) -> None:
        """Leaving `stack` ends what is there then."""
        self.inventory = Inventory(target=where.target, hosts=())
        self._images = {variant.name: variant.image for variant in where.variants}
        self._where, self._start, self._stack = where, start, stack
        self._image: str | None = None
        self._place: Place | None = None

    def be(self, image: str) -> Place:
        """Have pods of an image."""
        if self._place is None or image != self._image:
            self._place = None
            self._stack.close()
            self._place = self._stack.enter_context(self._start(_of(self._where, image)))
            self._image = image
        return self._place

    def begin(self, job: Job) -> Mapping[str, str]:
        """Give the documents of the pods that are there."""
        return self._place.begin(job) if self._place else {}

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Have pods of the trial's image, and run it in them."""
        return self.be(self._images[trial.arm.variant]).execute(trial)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the counters in the pods that are there."""
        return self._place.counters() if self._place else {}


def _of(where: Where, image: str) -> Where:
    """Say where to run the variants of one image; none: the target's own."""
    settings = {**where.settings, "image": image} if image else where.settings
    own = tuple(variant for variant in where.variants if variant.image == image)
    return replace(where, settings=settings, variants=own)
