-- +goose Up
-- migrations/mysql/00032 explains it.
ALTER TABLE tasks ADD COLUMN unread BLOB NOT NULL DEFAULT '';
