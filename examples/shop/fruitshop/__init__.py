"""A fruit shop: anonymous carts, stock, sign-in by code."""
