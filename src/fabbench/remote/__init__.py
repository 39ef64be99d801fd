"""Programs on other machines, and the options of the launchers that reach hosts by ssh."""

from dataclasses import dataclass
from pathlib import Path

from fabbench.model.options import (
    RARE,
    USER,
    Choice,
    File,
    Flag,
    LauncherOptions,
    Seconds,
    Whole,
    option,
)


@dataclass(frozen=True, kw_only=True)
class SshOptions(LauncherOptions):
    """How hosts are reached by ssh."""

    user: str | None = option(
        USER, "User to log in as. Default: that of ssh-config.", RARE, only="run", reaches=True
    )
    port: int | None = option(
        Whole(1, 65535),
        "Port of sshd. Default: that of ssh-config.",
        RARE,
        only="run",
        reaches=True,
    )
    identity: Path | None = option(
        File(), "Private key. Default: those of ssh-config.", RARE, only="run", reaches=True
    )
    ssh_config: Path | None = option(
        File(), "Read this file instead of ~/.ssh/config.", only="run", reaches=True
    )
    ssh_client: str = option(
        Choice(("auto", "paramiko", "openssh")),
        "ssh implementation: openssh (your ssh program; uses an open ControlMaster), or "
        "paramiko. auto: openssh if there is an ssh program.",
        RARE,
        default="auto",
        only="run",
        reaches=True,
    )
    accept_new_host_keys: bool = option(
        Flag(),
        "Accept unknown host keys; changed keys are still rejected.",
        only="run",
        reaches=True,
    )
    lost_after: float = option(
        Seconds(1), "Abort if a host has not answered for SECONDS.", RARE, default="60", only="run"
    )
