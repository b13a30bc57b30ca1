-- +goose NO TRANSACTION
-- +goose Up
-- Of a task that waits for a retry: idle is its pos if nothing of it was under way when it came there. A program of a version before
-- moves pos alone, and then nothing is known. snoozed is how many of its attempts do not count.
ALTER TABLE tasks ADD COLUMN idle BIGINT NOT NULL DEFAULT 0, ADD COLUMN snoozed SMALLINT UNSIGNED NOT NULL DEFAULT 0;
