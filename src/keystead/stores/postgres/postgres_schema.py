"""The tables in PostgreSQL, in their own schema `keystead`, so that names cannot clash."""

from __future__ import annotations

from keystead.stores.database.database_schema import Schema, SchemaChange, statements_of
from keystead.stores.database.database_session import Statement
from keystead.stores.database.dialect import IDS_AT_ONCE

UPGRADE_LOCK = 0x4B53_5445_4144_0003

FIRST = f"""
CREATE SCHEMA IF NOT EXISTS keystead;
CREATE TABLE IF NOT EXISTS keystead.version (version bigint NOT NULL);
CREATE SEQUENCE IF NOT EXISTS keystead.ids AS bigint INCREMENT BY {IDS_AT_ONCE};
CREATE TABLE IF NOT EXISTS keystead.keys (
    id bigint PRIMARY KEY,
    key bytea NOT NULL UNIQUE,
    rest bytea,
    kind bigint NOT NULL,
    expires_at bigint,
    size bigint NOT NULL,
    has_long bigint NOT NULL,
    value bytea
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS keys_by_deadline ON keystead.keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS keystead.fields (
    owner bigint NOT NULL, field bytea NOT NULL, rest bytea, value bytea, PRIMARY KEY (owner, field)
);
CREATE TABLE IF NOT EXISTS keystead.scored (
    owner bigint NOT NULL, member bytea NOT NULL, rest bytea, score float8 NOT NULL, PRIMARY KEY (owner, member)
);
CREATE INDEX IF NOT EXISTS scored_in_order ON keystead.scored (owner, score, member);
CREATE TABLE IF NOT EXISTS keystead.items (
    owner bigint NOT NULL, place bigint NOT NULL, item bytea NOT NULL, PRIMARY KEY (owner, place)
);
CREATE TABLE IF NOT EXISTS keystead.entries (
    owner bigint NOT NULL, entry bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (owner, entry)
);
CREATE TABLE IF NOT EXISTS keystead.garbage (owner bigint PRIMARY KEY, kind bigint NOT NULL);
CREATE TABLE IF NOT EXISTS keystead.messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel bytea NOT NULL,
    data bytea NOT NULL,
    sent_at bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS keystead.subscribers (
    id text NOT NULL, channel bytea NOT NULL, expires_at bigint NOT NULL, PRIMARY KEY (channel, id)
);
CREATE INDEX IF NOT EXISTS subscribers_by_id ON keystead.subscribers (id);
"""

SCHEMA = Schema(
    changes=(SchemaChange(1, "creates the schema keystead and its tables", statements_of(FIRST)),),
    find=Statement("SELECT max(version) FROM keystead.version HAVING count(*) > 0"),
    note="INSERT INTO keystead.version (version) VALUES ($1)",
    begin=(Statement("BEGIN"), Statement("SELECT pg_advisory_xact_lock($1)", (UPGRADE_LOCK,))),
    end=(Statement("COMMIT"),),
    transactional=True,
)
