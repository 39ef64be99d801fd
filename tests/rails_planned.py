"""Trials over rails for tests: planned, their words, and run on this machine with stand-in programs."""

from fabbench.drive import drive
from fabbench.launchers.local import LocalSession
from fabbench.machines import Host, Inventory
from fabbench.model import Log, Step, Trial
from fabbench.parse import Session, logs
from fabbench.plan import Request, Work, plan


def first_trial(benchmark: str, work: Work, fabric: str, hosts: tuple[Host, ...]) -> Trial:
    """Plan a run on one fabric, or on the best one where none is named; give its first trial."""
    request = Request(benchmark=benchmark, target="x", fabrics=(fabric,) if fabric else ())
    return plan(request, Inventory(target="x", hosts=hosts), work).trials[0]


def words(step: Step, role: str = "client") -> tuple[str, ...]:
    """The words of one side."""
    (command,) = (command for command in step.commands if command.role == role)
    return command.argv


def option(argv: tuple[str, ...], name: str) -> str:
    """The word behind an option."""
    return argv[argv.index(name) + 1]


def measured(trial: Trial, host: Host) -> Log:
    """Run a trial here, and judge its one log."""
    session = Session("x", proof=trial.proof)
    driven = drive(lambda step: LocalSession(step, host), trial)
    found = []
    while True:
        try:
            found += session.feed_lines([next(driven)])
        except StopIteration as end:
            (log,) = logs([*found, *session.close(end.value)])
            return log
