"""`python -m noisegate.cli`."""

import sys

from noisegate.cli import main

if __name__ == "__main__":
    sys.exit(main())
