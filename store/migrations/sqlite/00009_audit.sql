-- +goose Up
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who BLOB NOT NULL, via BLOB NOT NULL, os_user BLOB NOT NULL, what BLOB NOT NULL,
  topic BLOB NOT NULL, task_id BLOB NOT NULL, detail BLOB NOT NULL, amount INTEGER NOT NULL
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_task ON audit (task_id, at);
