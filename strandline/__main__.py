"""`python -m strandline` is the `strandline` command."""

from __future__ import annotations

from strandline.cli.main import main

if __name__ == "__main__":
    main()
