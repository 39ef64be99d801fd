"""``python -m fabbench``, and the console script."""

import gc
import os
import signal

from fabbench.model.errors import lacks_memory


def main() -> None:
    """Start the command line."""
    # Modules, and millions of points that live until their log is written: hardly a cycle among them.
    gc.set_threshold(100_000, 20, 20)
    try:
        from fabbench.cli.standard_streams import prepare_streams

        prepare_streams()
        from fabbench.cli import cli

        cli.main(prog_name="fabbench")
    except KeyboardInterrupt:  # before the command line is there to say so
        os.write(2, b"Interrupted.\n")
        os._exit(130)
    except (MemoryError, ImportError) as error:
        if not lacks_memory(error):
            raise
        _end_without_memory()
    finally:
        # Python notes a Ctrl-C that left an `exec`, such as a dataclass's, and would end by that signal, even
        # where it was handled. Another `exec` drops the note.
        exec("")  # noqa: S102
        # What is left is Python's own clean-up, which would print a traceback.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        gc.freeze()  # all memory is given back now: the interpreter need not look for garbage


def _end_without_memory() -> None:
    """Say so, and end: whatever else happens may need memory too."""
    os.write(2, b"Error: Not enough memory (see ulimit -v).\n")
    os._exit(3)


if __name__ == "__main__":
    main()
