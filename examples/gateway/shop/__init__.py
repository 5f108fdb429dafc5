"""The key document that a Python and a TypeScript team share."""
