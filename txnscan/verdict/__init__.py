"""From evidence to verdict and outcome. Pure."""
