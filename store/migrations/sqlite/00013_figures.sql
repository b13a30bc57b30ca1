-- +goose Up
ALTER TABLE services ADD COLUMN figures BLOB NOT NULL DEFAULT '';
CREATE TABLE figures (minute INTEGER NOT NULL, process BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (minute, process));
CREATE INDEX dead_letters_kind ON dead_letters (kind, replayed_at);
