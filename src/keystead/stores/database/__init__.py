"""What the stores on a database server share: PostgreSQL, and MySQL or MariaDB.

A caller's batch waits in a queue; all that wait at the same moment form a group, which runs in one transaction. Each
transaction takes two round trips, however many commands are in it: the first locks the keys and reads what the
commands need (rows, fields, scores), then the interpreter runs in memory, and the second writes what changed and
commits. Only what cannot be known before (ranges of sorted sets, lists and streams) is asked for in between. Reads
alone take one round trip, on a snapshot.

**Why keys are locked, not rows.** A row that is not there cannot be locked, and most of what must happen once is the
creation of a key. So a writer first locks the names of all keys of its group, in order, which excludes every other
writer of these keys in any process; with the names locked no two transactions can meet in another order, and what is
read under the locks stays true until the commit. On PostgreSQL these are advisory locks of the transaction, which
cost no write; MySQL has none that end with a transaction, so there they are row locks on a table of lock numbers.
Deadlocks can then only come from others who touch the tables; they, and every serialization failure, are tried again.

**Whose clock.** Time is that of the database server, read with the first round trip.
"""
