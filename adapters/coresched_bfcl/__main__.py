"""`python -m coresched_bfcl`: all of bfcl's commands and options."""

import sys

from coresched_bfcl.command import main

if __name__ == "__main__":
    sys.exit(main())
