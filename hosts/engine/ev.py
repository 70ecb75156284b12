"""EV states; signatures follow in the next commit."""
from enum import Enum
class EvState(Enum):
    """State of one EV (§7); the values are the numbers of the specification."""
    GOOD = 0
    DENIED = 1
    SKIP = 2
    ASSUMED_BAD = 3
