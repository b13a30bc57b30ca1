-- +goose NO TRANSACTION
-- +goose Up
-- A claimed task up to doubt may have been sent before its owner claimed it. It is noted under an epoch: a program of a version before
-- takes slots without noting it, and then all that is claimed counts as such.
ALTER TABLE slots ADD COLUMN doubt BIGINT NOT NULL DEFAULT 0, ADD COLUMN doubt_epoch BIGINT NOT NULL DEFAULT -1;
