"""`python -m coresched_tau2`: all of tau2's commands and options."""

import sys

from coresched_tau2.command import main

if __name__ == "__main__":
    sys.exit(main())
