-- +goose NO TRANSACTION
-- +goose Up
-- When and why the task's latest attempts failed.
ALTER TABLE tasks ADD COLUMN failures VARBINARY(2800) NOT NULL DEFAULT '';
