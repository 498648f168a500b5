"""python -m xdeconv is the command xdeconv."""

import sys


def main() -> None:
    """The command line; whoever changes their mind while it is being imported sees no trace of that."""
    try:
        from .cli import main as command
    except KeyboardInterrupt:
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
