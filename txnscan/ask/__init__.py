"""What one command asks of a cluster and shows as it is answered: transactions, producers, coordinators, their log.

Nothing here judges: an answer is a broker's word, and says whose. `find-hanging` and `sweep` prove.
"""

from txnscan.model import Failure

# Of a partition that would be asked about.
NO_LEADER = Failure("it has no leader")
