-- +goose NO TRANSACTION
-- +goose Up
-- What is no number: the installation's id, and keys. Programs of the version before leave it empty.
ALTER TABLE meta ADD COLUMN data VARBINARY(255) NOT NULL DEFAULT '';
