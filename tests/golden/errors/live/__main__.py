"""Records the lines that clients print in each state."""

from tests.golden.errors.live import main

main()
