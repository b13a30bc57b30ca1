-- +goose Up
-- migrations/mysql/00034 explains it.
ALTER TABLE tasks ADD COLUMN failures BLOB NOT NULL DEFAULT '';
