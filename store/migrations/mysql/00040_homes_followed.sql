-- +goose NO TRANSACTION
-- +goose Up
-- How far the tasks of a rule's targets have followed. taken counts in the database that they leave, arrived in the other one.
ALTER TABLE homes
  ADD COLUMN followed TINYINT NOT NULL DEFAULT 1 COMMENT '0: the former database may have tasks of these targets',
  ADD COLUMN taken    BIGINT  NOT NULL DEFAULT 0 COMMENT 'the last number in leaving',
  ADD COLUMN arrived  BIGINT  NOT NULL DEFAULT 0 COMMENT 'the last number that is stored here';
