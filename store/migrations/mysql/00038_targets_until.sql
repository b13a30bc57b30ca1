-- +goose NO TRANSACTION
-- +goose Up
-- When a pause ends by itself. A program of the version before knows of no end: a pause that it sets, or finds, stays for it. One that
-- it set later than this instant has none, see store/admin/policies.go.
ALTER TABLE targets ADD COLUMN paused_until BIGINT NOT NULL DEFAULT 0 COMMENT 'Unix ms; 0: when an operator resumes the target';
