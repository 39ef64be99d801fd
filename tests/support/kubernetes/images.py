"""The images that the cluster's nodes have.

There is no registry: any other name is a failed pull.
"""

from pathlib import Path

from tests.support.kubernetes import archive
from tests.support.kubernetes.archive import Image
from tests.support.kubernetes.settings import CACHE
from tests.support.paths import ROOT

CPU = "localhost/cpu:test"
"""docker/cpu: sshd, Open MPI, libfabric; no nccl-tests."""
NCCL = "localhost/nccl-tests:test"
"""That, with stand-ins where public.ecr.aws/hpc-cloud/nccl-tests has the real programs."""
OLDER = "localhost/nccl-tests:older"
"""That, with another NCCL in /opt/nccl-2.21.5."""
NO_SSHD = "localhost/no-sshd:test"
NO_MPI = "localhost/no-mpi:test"
PAUSE = "localhost/pause:test"

_STANDIN = ROOT / "tests/support/fake_programs/nccl_tests"
_PLACE = "/opt/nccl-tests/build"
_SSHD = ("usr/sbin/sshd", "usr/bin/ssh-keygen")
_MPI = ("usr/bin/mpirun", "usr/bin/mpiexec", "usr/bin/orterun", "usr/bin/orted")


def build(folder: Path) -> Path:
    """Write the archive of all images; the stand-ins are those of the working tree."""
    root = CACHE / "image/root.tar"
    standin = archive.layer(folder / "standin.tar", {_PLACE: _STANDIN})
    no_sshd = archive.layer(folder / "no-sshd.tar", dict.fromkeys(_SSHD))
    no_mpi = archive.layer(folder / "no-mpi.tar", dict.fromkeys(_MPI))
    older = archive.layer(folder / "older.tar", {"/opt/nccl-2.21.5/lib": _older(folder / "older")})
    pause = archive.layer(folder / "pause.tar", {"pause": CACHE / "kubernetes/pause"})
    images = [
        Image(name=PAUSE, layers=[pause], command=["/pause"]),
        Image(name=CPU, layers=[root], command=["sleep", "infinity"]),
        Image(name=NCCL, layers=[root, standin], command=["sleep", "infinity"]),
        Image(name=OLDER, layers=[root, standin, older], command=["sleep", "infinity"]),
        Image(name=NO_SSHD, layers=[root, standin, no_sshd], command=["sleep", "infinity"]),
        Image(name=NO_MPI, layers=[root, standin, no_mpi], command=["sleep", "infinity"]),
    ]
    archive.write(folder / "images.tar", images)
    return folder / "images.tar"


def _older(folder: Path) -> Path:
    """Make what the stand-in takes for NCCL 2.21.5."""
    folder.mkdir()
    (folder / "libnccl.so.2.21.5").touch()
    (folder / "libnccl.so.2").symlink_to("libnccl.so.2.21.5")
    return folder
