"""Programs that test the promises extensively. Run each by name; `make test` does not run them."""
