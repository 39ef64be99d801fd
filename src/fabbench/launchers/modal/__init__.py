"""Modal: apps that run a plan in its containers. These are rendered, not launched. Its options."""

from fabbench.catalog.images import DEFAULT
from fabbench.launchers.shared_options import InstanceOptions
from fabbench.model.options import IMAGE, option
from fabbench.model.values import frozen


@frozen
class ModalOptions(InstanceOptions):
    """Options of the format ``modal``: Modal chooses the hosts."""

    without = ("hosts",)

    image: str = option(IMAGE, "Container image. Default: AWS's nccl-tests, pinned.", unset=DEFAULT)


OPTIONS = ModalOptions
