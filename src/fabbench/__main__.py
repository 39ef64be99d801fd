"""``python -m fabbench``, and the console script."""


def main() -> None:
    """Start the command line."""
    from fabbench.cli import cli

    cli.main(prog_name="fabbench")


if __name__ == "__main__":
    main()
