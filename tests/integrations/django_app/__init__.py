"""A Django application with a keyspace."""
