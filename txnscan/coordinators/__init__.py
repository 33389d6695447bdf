"""Ask the brokers as a whole: who leads, what coordinators claim, and whether all of them were seen."""
