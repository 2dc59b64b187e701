"""The `oneiro` command, which `python -m oneiro` is too."""

import sys


def main() -> int:
    """The entry point. Ctrl-C while the command is still being loaded ends it as quietly as later."""
    try:
        from oneiro.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
