"""What one command asks of a cluster and shows as it is answered: transactions, producers, coordinators, their log.

Nothing here judges: an answer is what one broker says, and names that broker. `find-hanging` and `sweep` prove.
"""

from txnscan.model import Failure

# Why a partition cannot be asked about.
NO_LEADER = Failure("it has no leader")
