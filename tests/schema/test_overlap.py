"""Two patterns that can make the same key are found, with that key; two that cannot are left in peace."""
