"""``python -m fabbench``, and the console script."""

import gc
import os
import signal

from fabbench.model.errors import lacks_memory


def main() -> None:
    """Start the command line."""
    # Modules, and the millions of points that live until their log is written, have hardly any
    # cycles.
    gc.set_threshold(100_000, 20, 20)
    try:
        from fabbench.cli import cli, failures_of_process

        with failures_of_process():
            cli.main(prog_name="fabbench")
    except KeyboardInterrupt:  # before the command line is loaded to report it
        os.write(2, b"Interrupted.\n")
        os._exit(130)
    except (MemoryError, ImportError) as error:
        if not lacks_memory(error):
            raise
        # Anything else may need memory, too.
        os.write(2, b"Error: Not enough memory (see ulimit -v).\n")
        os._exit(3)
    finally:
        # Python remembers a Ctrl-C that escaped an `exec`, such as a dataclass's, and would exit by
        # that signal even if it was handled. Another `exec` clears it.
        exec("")  # noqa: S102
        # Only Python's own cleanup is left, which would print a traceback.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        gc.freeze()  # all memory is about to be released: the interpreter need not look for garbage


if __name__ == "__main__":
    main()
