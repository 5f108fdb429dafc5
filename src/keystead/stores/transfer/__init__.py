"""One engine for backups and copies: reads, writes and compares full keys, each with its value and its deadline."""
