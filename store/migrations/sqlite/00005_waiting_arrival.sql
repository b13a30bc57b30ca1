-- +goose Up
CREATE TABLE queue (
  arrived INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL UNIQUE, ident BLOB NOT NULL, report INTEGER NOT NULL, request BLOB NOT NULL,
  size INTEGER GENERATED ALWAYS AS (LENGTH(request)) STORED
);
INSERT INTO queue (seq, ident, report, request) SELECT seq, ident, report, request FROM waiting ORDER BY seq;
DROP TABLE waiting;
ALTER TABLE queue RENAME TO waiting;
CREATE INDEX waiting_queue ON waiting (ident, report, arrived, size);
