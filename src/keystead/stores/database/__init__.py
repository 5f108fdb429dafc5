"""The base of the stores on a database server: PostgreSQL, and MySQL or MariaDB.

Batches wait in a queue; all that wait at the same moment form a group, which runs in one transaction. Each transaction
takes two round trips, however many commands it has: the first locks the keys and reads what the commands need (rows,
fields, scores), then the interpreter runs in memory, and the second writes the changes and commits. Only reads that
cannot be foreseen (ranges of sorted sets, lists and streams) add round trips in between. Batches that only read take
one round trip, on a snapshot.

**Why keys are locked, not rows.** A row that does not exist cannot be locked, and most operations that must happen only
once create a key. So a writer first locks the names of all keys of its group, in order, which excludes every other
writer of these keys in any process. The fixed order prevents deadlocks, and data read under the locks stays valid until
the commit. On PostgreSQL these are transaction-level advisory locks, which cost no write. MySQL has none that end with
a transaction, so there they are row locks on a table of lock numbers. Deadlocks can then only come from other programs
that use the tables; they, and every serialization failure, are retried.

**Clock.** Time is that of the database server, read in the first round trip.
"""
