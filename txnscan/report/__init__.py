"""A sweep for people and for programs: `table` for terminals, `json` for pipes, `progress` for those who wait."""
