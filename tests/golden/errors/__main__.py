"""Records the errors that clients print."""

from tests.golden.errors import main

main()
