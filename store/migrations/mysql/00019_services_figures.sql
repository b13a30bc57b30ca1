-- +goose NO TRANSACTION
-- +goose Up
-- What a process says of its own work, for operators. Nothing else goes by it. Programs of the version before leave it empty.
ALTER TABLE services ADD COLUMN figures VARBINARY(4096) NOT NULL DEFAULT '' COMMENT 'JSON with a version; empty: it says nothing';
