-- +goose NO TRANSACTION
-- +goose Up
-- Attempts that the owner has sent, and of which the database has forgotten the tasks: see handle.SentNotes. A program of the version
-- before leaves them alone.
ALTER TABLE slots ADD COLUMN sent MEDIUMBLOB NULL;
