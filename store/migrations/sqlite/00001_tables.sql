-- +goose Up
-- The same tables as for MySQL; see there for what each column means.
CREATE TABLE tasks (
  seq INTEGER PRIMARY KEY, ident BLOB NOT NULL UNIQUE, slot INTEGER NOT NULL, pos INTEGER NOT NULL, lane INTEGER NOT NULL, due INTEGER NOT NULL,
  state INTEGER NOT NULL, attempt INTEGER NOT NULL, replay INTEGER NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL,
  topic BLOB NOT NULL, id BLOB NOT NULL, body BLOB NOT NULL
);
CREATE INDEX line ON tasks (slot, pos, lane);
CREATE TABLE slots (slot INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, owner BLOB NOT NULL, claimed INTEGER NOT NULL, done INTEGER NOT NULL);
CREATE TABLE sources (src INTEGER PRIMARY KEY, topic BLOB NOT NULL, topic_id BLOB NOT NULL, part INTEGER NOT NULL, next_offset INTEGER NOT NULL, UNIQUE (topic, topic_id, part));
CREATE TABLE outbox (src INTEGER NOT NULL, seq INTEGER NOT NULL, events BLOB NOT NULL, PRIMARY KEY (src, seq));
CREATE TABLE waiting (seq INTEGER PRIMARY KEY, ident BLOB NOT NULL, report INTEGER NOT NULL, request BLOB NOT NULL);
CREATE INDEX waiting_ident ON waiting (ident);
CREATE TABLE dead_letters (
  id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, kind BLOB NOT NULL, topic BLOB NOT NULL, task_id BLOB NOT NULL, due INTEGER NOT NULL,
  attempt INTEGER NOT NULL, replay INTEGER NOT NULL, reason BLOB NOT NULL, died_at INTEGER NOT NULL, replayed_at INTEGER NOT NULL, replayed_by BLOB NOT NULL,
  body BLOB NOT NULL, UNIQUE (seq, replay)
);
CREATE INDEX dead_letters_topic ON dead_letters (topic, id);
CREATE TABLE meta (name BLOB PRIMARY KEY, value INTEGER NOT NULL);
