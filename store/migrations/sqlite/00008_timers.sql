-- +goose Up
CREATE TABLE timers (
  ident BLOB PRIMARY KEY, slot INTEGER NOT NULL, next INTEGER NOT NULL, open INTEGER NOT NULL, placed INTEGER NOT NULL, state INTEGER NOT NULL,
  seq INTEGER NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL, topic BLOB NOT NULL, id BLOB NOT NULL, definition BLOB NOT NULL, body BLOB NOT NULL
);
CREATE INDEX timers_due ON timers (slot, next);
CREATE INDEX timers_name ON timers (topic, id);
