-- +goose Up
-- migrations/mysql/00035 explains them.
ALTER TABLE sources ADD COLUMN proof_at INTEGER NOT NULL DEFAULT -1;
ALTER TABLE sources ADD COLUMN proof_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sources ADD COLUMN proof_sum INTEGER NOT NULL DEFAULT 0;
