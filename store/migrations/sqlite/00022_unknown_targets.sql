-- +goose Up
-- migrations/mysql/00033 explains it.
CREATE TABLE unknown_targets (intake BLOB NOT NULL, topic BLOB NOT NULL, PRIMARY KEY (intake, topic)) WITHOUT ROWID;
