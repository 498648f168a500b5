"""python -m xdeconv is the command xdeconv."""

from .cli import main

if __name__ == "__main__":
    main()
