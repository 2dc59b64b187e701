"""The `oneiro` command, which `python -m oneiro` is too."""

import signal
import sys


def main() -> int:
    """The entry point. Ctrl-C while the command is loaded, and after its work, ends the process at once and quietly."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a shell has set it aside
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oneiro.cli import main as command

    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command()
    except KeyboardInterrupt:
        return 130
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
