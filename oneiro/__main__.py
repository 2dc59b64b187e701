"""`python -m oneiro` is the `oneiro` command."""

import sys

from oneiro.cli import main

sys.exit(main())
