"""Options that only Slurm has a use for."""

import click

slurm = (
    click.option(
        "--login", metavar="HOST", help="Login node of the Slurm, as ssh knows it. This machine, else."
    ),
    click.option("--partition", metavar="NAME", help="Slurm's partition. Its default one if not given."),
    click.option("--account", metavar="NAME", help="The account that Slurm charges."),
    click.option("--qos", metavar="NAME", help="Slurm's quality of service."),
    click.option(
        "--time",
        metavar="LIMIT",
        help="Time limit of the job (2:00:00). As long as the plan may take if not given.",
    ),
    click.option("--reservation", metavar="NAME", help="A reservation of Slurm's."),
    click.option("--constraint", metavar="FEATURES", help="Features that Slurm's nodes must have."),
    click.option(
        "--mpi",
        type=click.Choice(["srun", "mpirun"]),
        help="What starts the ranks in a job of Slurm's. srun (with PMIx) if not given.",
    ),
    click.option(
        "--container-mounts",
        multiple=True,
        metavar="FROM:TO",
        help="Folders for the container (--image) of a job. Can be given several times.",
    ),
    click.option(
        "--chdir",
        metavar="FOLDER",
        help="Where the job writes its output: a folder that the login node and all nodes share.",
    ),
    click.option(
        "--sbatch-option",
        "sbatch_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Another option for sbatch, such as exclude=node7. Can be given several times.",
    ),
    click.option(
        "--no-gres", is_flag=True, help="Do not ask for GPUs: for a Slurm that does not count those it has."
    ),
)

SLURM = (
    *("login", "partition", "account", "qos", "time", "reservation", "constraint", "mpi"),
    *("container_mounts", "chdir", "sbatch_options", "no_gres"),
)
"""Their names."""
