-- +goose NO TRANSACTION
-- +goose Up
-- The last stored record of a partition, which its log must still have. A program of the version before leaves it at an earlier one.
ALTER TABLE sources
  ADD COLUMN proof_at   BIGINT NOT NULL DEFAULT -1 COMMENT 'the offset of a stored record, -1: none is known',
  ADD COLUMN proof_time BIGINT NOT NULL DEFAULT 0  COMMENT 'its timestamp (Unix ms)',
  ADD COLUMN proof_sum  BIGINT NOT NULL DEFAULT 0  COMMENT 'xxHash64 of its key, value and headers';
