"""Modal: apps that run a plan in its containers. These are rendered, not launched."""

from dataclasses import replace

from fabbench.benchmarks import benchmark_named
from fabbench.catalog.images import DEFAULT
from fabbench.catalog.systems import System
from fabbench.execution.script import headline, script
from fabbench.execution.script.words import script_template, variable
from fabbench.launchers import Rendering, RenderInput, require_way
from fabbench.launchers.batch_job import log_in, longest_s
from fabbench.launchers.modal import ModalOptions
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import RDMA
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.templates import environment

# Modal's names of models; its ``H100`` may become an H200.
_GPUS = {"H100": "H100!", "H200": "H200", "B200": "B200", "B300": "B300"}
_GPUS_PER_HOST = 8
_FABRICS = ("efa",)  # Of the app's clusters, which are on AWS
_LONGEST_S = 24 * 3600  # The maximum timeout of a Modal function
_INTERFACE = variable("interface")  # which the app finds


class ModalRendering(Rendering):
    """The format ``modal``."""

    name = "modal"
    options = ModalOptions
    inherits = True

    @override
    def inventory(self, target: Target, needs: Needs) -> Inventory:
        # Unless the user names one, the app finds the interface that connects the hosts.
        between_hosts = "" if target.nodes == 1 else _INTERFACE
        return super().inventory(
            replace(target, interface=target.interface or between_hosts), needs
        )

    def render(self, source: RenderInput) -> str:
        """Write the app. Raise RequestError for hosts that Modal does not offer."""
        instance = _instance(source)
        require_way(source.plan, _FABRICS, "Modal's containers on AWS", "--efa is there.")
        image = source.options_as(ModalOptions).image
        benchmark = benchmark_named(source.plan.benchmark)
        packages = benchmark.python_packages if image == DEFAULT else ()
        if not packages:  # nothing is installed: the image must have the programs
            benchmark.require_image(image)
        # It reads the hosts and logs in to them; at its end, the first lets the others go.
        opening = _opening(source.request.target) if source.plan.hosts > 1 else ""
        at_exit = "complete" if opening else ""
        target = source.script_target("", opening=opening, at_exit=at_exit, in_container=True)
        text = script(source.plan, target)
        app = environment("fabbench.launchers.modal").get_template("app.txt")
        fabrics = {configuration.fabric for configuration in source.plan.configurations}
        rendered: str = app.render(
            command=source.command,
            title=headline(source.plan),
            first=source.plan.configurations[0].label,
            plan=source.plan,
            image=image,
            gpus=f"{_GPUS[instance.gpu_model]}:{instance.gpus}",
            rdma=not fabrics.isdisjoint(RDMA),
            timeout_s=min(longest_s(source.plan), _LONGEST_S),
            inherited=source.request.target.inherited,  # Modal gets their values as a secret
            # All but an image that the user names for a benchmark in Python: that has its own.
            add_python=not benchmark.python_packages or bool(packages),
            packages=packages,
            script=literal(text),
        )
        return rendered


def _opening(target: Target) -> str:
    """Return the text by which hosts find each other."""
    logging_in = log_in("${NUMBER:-0}", port=2222, sshd="-qf /dev/null")
    template = script_template("fabbench.launchers.modal", "opening.txt")
    return template.render(interface=target.interface, log_in=logging_in)


def _instance(source: RenderInput) -> System:
    """Return the type of the hosts, if Modal offers it."""
    instance = source.system
    if instance is None:
        actual = "the type of the hosts is unknown"
    elif instance.gpu_model in _GPUS and instance.gpus == _GPUS_PER_HOST:
        return instance
    else:
        count = instance.gpus or "no"
        model = instance.gpu_model or "GPU"
        actual = f"{instance.name} has {count} {model}"
    models = ", ".join(_GPUS)
    raise RequestError(
        f"Modal's clusters have whole hosts with {_GPUS_PER_HOST} GPUs of {models}, but {actual}.",
        hint="Pass their type, such as --instance-type p5.48xlarge.",
    )


def literal(text: str) -> str:
    """Write a multi-line string as a Python literal: verbatim, if possible."""
    plain = text.replace("\n", "").replace("\t", "").isprintable()
    marks = "'''" if '"""' in text else '"""'
    ends_the_literal = marks in text or text.endswith(("\\", marks[0]))
    verbatim = plain and not ends_the_literal
    return f"r{marks}{text}{marks}" if verbatim else repr(text)


RENDERING: Rendering = ModalRendering()
