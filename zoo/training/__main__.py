"""``python -m zoo.training``: what ``train.py`` does, for those who installed the package."""

import sys

from zoo.training.program import main

if __name__ == "__main__":
    sys.exit(main())
