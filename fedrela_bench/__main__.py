"""``python -m fedrela_bench`` is the command ``fedrela-bench``."""

from __future__ import annotations

import sys

from fedrela_bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
