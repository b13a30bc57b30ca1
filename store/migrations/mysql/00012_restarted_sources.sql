-- +goose NO TRANSACTION
-- +goose Up
-- The leader epoch of the record before epoch_to says whether the log is still the one that was stored. A partition whose log
-- lost records goes on as another source: the row before it is retired, and its numbers are never given again.
-- Programs of the version before name the columns that they write and read, so they work with these as well.
ALTER TABLE sources
  ADD COLUMN epoch      INT    NOT NULL DEFAULT -1 COMMENT 'leader epoch of the last stored record, -1: not known',
  ADD COLUMN epoch_from BIGINT NOT NULL DEFAULT 0 COMMENT 'where that epoch began',
  ADD COLUMN epoch_to   BIGINT NOT NULL DEFAULT 0 COMMENT 'behind the last record that was stored with it',
  ADD COLUMN generation INT    NOT NULL DEFAULT 0 COMMENT 'restarts before this source',
  ADD COLUMN retired_at BIGINT NOT NULL DEFAULT 0 COMMENT 'Unix ms of the restart behind it, 0: in use',
  DROP KEY part,
  ADD UNIQUE KEY part (topic, topic_id, part, generation);
