"""`python -m fusiondsl`."""

from __future__ import annotations

import sys

from fusiondsl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
