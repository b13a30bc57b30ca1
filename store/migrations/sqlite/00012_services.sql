-- +goose Up
CREATE TABLE services (
  id BLOB PRIMARY KEY, kind BLOB NOT NULL, owner BLOB NOT NULL, version BLOB NOT NULL, http BLOB NOT NULL, started INTEGER NOT NULL, seen INTEGER NOT NULL
);

-- +goose Down
DROP TABLE services;
