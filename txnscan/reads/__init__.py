"""Read partitions: plan the reads, read all of them, and read some with proof."""
