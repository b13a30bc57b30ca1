-- +goose Up
-- migrations/mysql/00042 explains it.
ALTER TABLE slots ADD COLUMN sent BLOB;
