-- +goose Up
-- migrations/mysql/00039 explains it.
CREATE TABLE operations (
  id INTEGER PRIMARY KEY AUTOINCREMENT, what BLOB NOT NULL, topic BLOB NOT NULL, task_id BLOB NOT NULL, tenant BLOB NOT NULL, who BLOB NOT NULL, via BLOB NOT NULL,
  os_user BLOB NOT NULL, state BLOB NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL, request BLOB NOT NULL, result BLOB NOT NULL, why BLOB NOT NULL,
  created INTEGER NOT NULL, changed INTEGER NOT NULL, lease INTEGER NOT NULL, holder BLOB NOT NULL
);
CREATE INDEX operations_state ON operations (state, changed);
CREATE INDEX operations_tenant ON operations (tenant, id);
