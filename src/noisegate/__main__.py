"""`python -m noisegate` is the command line."""

import sys

from noisegate.cli import main

if __name__ == "__main__":
    sys.exit(main())
