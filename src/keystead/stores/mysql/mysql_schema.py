"""The tables in MySQL or MariaDB. All names and values are binary, so that no collation treats two as equal."""

from __future__ import annotations

from keystead.stores.database.database_schema import Schema, SchemaChange, statements_of
from keystead.stores.database.database_session import Statement
from keystead.stores.database.hashed_names import LONGEST
from keystead.stores.mysql.mysql_dialect import SWEEP_LOCK

_INNODB = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET = binary"
_NAME = f"varbinary({LONGEST + 1}) NOT NULL"

_LOCKS = ", ".join(f"({n})" for n in range(SWEEP_LOCK + 1))
FIRST = f"""
CREATE TABLE IF NOT EXISTS keystead_version (version bigint PRIMARY KEY) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_ids (one bigint PRIMARY KEY, next bigint NOT NULL) {_INNODB};
INSERT IGNORE INTO keystead_ids (one, next) VALUES (1, 1);
CREATE TABLE IF NOT EXISTS keystead_locks (n bigint PRIMARY KEY) {_INNODB};
INSERT IGNORE INTO keystead_locks (n) VALUES {_LOCKS};
CREATE TABLE IF NOT EXISTS keystead_keys (
    id bigint PRIMARY KEY,
    `key` {_NAME},
    rest longblob,
    kind bigint NOT NULL,
    expires_at bigint,
    size bigint NOT NULL,
    has_long bigint NOT NULL,
    value longblob,
    UNIQUE keys_by_name (`key`),
    INDEX keys_by_deadline (expires_at)
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_fields (
    owner bigint NOT NULL, field {_NAME}, rest longblob, value longblob, PRIMARY KEY (owner, field)
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_scored (
    owner bigint NOT NULL, member {_NAME}, rest longblob, score bigint NOT NULL,
    PRIMARY KEY (owner, member), INDEX scored_in_order (owner, score, member)
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_items (
    owner bigint NOT NULL, place bigint NOT NULL, item longblob NOT NULL, PRIMARY KEY (owner, place)
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_entries (
    owner bigint NOT NULL, entry varbinary(16) NOT NULL, body longblob NOT NULL, PRIMARY KEY (owner, entry)
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_garbage (owner bigint PRIMARY KEY, kind bigint NOT NULL) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_messages (
    id bigint AUTO_INCREMENT PRIMARY KEY, channel longblob NOT NULL, data longblob NOT NULL, sent_at bigint NOT NULL
) {_INNODB};
CREATE TABLE IF NOT EXISTS keystead_subscribers (
    id varbinary(64) NOT NULL, channel {_NAME}, expires_at bigint NOT NULL,
    PRIMARY KEY (channel, id), INDEX subscribers_by_id (id)
) {_INNODB};
"""  # noqa: S608 - constants

SCHEMA = Schema(
    changes=(SchemaChange(1, "creates the tables keystead_*", statements_of(FIRST)),),
    find=Statement("SELECT MAX(version) FROM keystead_version HAVING COUNT(*) > 0"),
    note="INSERT INTO keystead_version (version) VALUES (?)",
    begin=(Statement("SELECT GET_LOCK(CONCAT('keystead:', SHA1(DATABASE())), 20)"),),
    end=(Statement("SELECT RELEASE_LOCK(CONCAT('keystead:', SHA1(DATABASE())))"),),
    transactional=False,
)
