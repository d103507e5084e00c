"""`python -m hookline`: the command line."""

import sys

from hookline.web._serve import main

sys.exit(main())
