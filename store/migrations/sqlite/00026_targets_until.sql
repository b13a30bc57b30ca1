-- +goose Up
-- migrations/mysql/00038 explains it.
ALTER TABLE targets ADD COLUMN paused_until INTEGER NOT NULL DEFAULT 0;
