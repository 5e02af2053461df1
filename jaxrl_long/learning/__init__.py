"""Pure numerics: returns, distributions, networks, moments."""
