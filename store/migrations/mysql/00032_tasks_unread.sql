-- +goose NO TRANSACTION
-- +goose Up
-- The latest report about the task that could not be read.
ALTER TABLE tasks ADD COLUMN unread VARBINARY(600) NOT NULL DEFAULT '';
