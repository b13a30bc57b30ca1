-- +goose Up
CREATE TABLE targets (topic BLOB PRIMARY KEY, paused INTEGER NOT NULL, rate REAL NOT NULL, max_in_flight INTEGER NOT NULL, changed INTEGER NOT NULL);
