"""Worlds: the contract, the vector of copies, Brax, and our own small ones."""
