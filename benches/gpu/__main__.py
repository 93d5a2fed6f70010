"""`python3 build/gpu`: run the suite, from the folder that `make gpu` made."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu import suite

if __name__ == "__main__":
    sys.exit(suite.main())
