"""Parts: operations over families that every kit and every application can use."""
