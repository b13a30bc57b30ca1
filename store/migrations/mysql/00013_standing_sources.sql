-- +goose NO TRANSACTION
-- +goose Up
-- Written when one batch has been tried for a minute, and read by an operator. It says nothing once next_offset is another one.
ALTER TABLE sources
  ADD COLUMN stands_at BIGINT         NOT NULL DEFAULT -1 COMMENT 'the offset at which a scanner could not go on',
  ADD COLUMN stands    VARBINARY(1024) NOT NULL DEFAULT '' COMMENT 'why';
