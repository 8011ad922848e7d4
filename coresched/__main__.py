"""`python -m coresched` is the `coresched` command."""

import sys

from coresched.cli.main import main

sys.exit(main())
