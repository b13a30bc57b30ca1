-- +goose Up
-- migrations/mysql/00031 explains them.
ALTER TABLE tasks ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN snoozed INTEGER NOT NULL DEFAULT 0;
