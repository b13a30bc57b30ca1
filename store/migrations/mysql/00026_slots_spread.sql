-- +goose NO TRANSACTION
-- +goose Up
-- How the number of slots changes while services run: see docs/design/slots.md. While it does not, base, spread and target are the number
-- of slots in all rows. Programs of the version before neither write nor read these; the number is not changed while one of them runs.
ALTER TABLE slots
  ADD COLUMN base INT NOT NULL DEFAULT 0 COMMENT 'number of slots that finds the first slot of a key',
  ADD COLUMN spread INT NOT NULL DEFAULT 0 COMMENT 'number of slots over which the keys of this one are spread',
  ADD COLUMN target INT NOT NULL DEFAULT 0 COMMENT 'number of slots that is to be',
  ADD COLUMN moved BIGINT NOT NULL DEFAULT 9223372036854775807 COMMENT 'of a slot that is split: up to there each task stands where it belongs',
  ADD COLUMN moved_held BIGINT NOT NULL DEFAULT 9223372036854775807 COMMENT 'the same for held places',
  ADD COLUMN turn BIGINT NOT NULL DEFAULT 0 COMMENT 'owners that know another one look again before they claim';
