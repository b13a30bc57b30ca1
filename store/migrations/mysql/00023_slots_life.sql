-- +goose NO TRANSACTION
-- +goose Up
-- The life of the database in which the slot was last taken or claimed, and the epoch under which. A program of the version before
-- takes slots under epochs that are not noted here.
ALTER TABLE slots ADD COLUMN life VARBINARY(64) NOT NULL DEFAULT '', ADD COLUMN life_epoch BIGINT NOT NULL DEFAULT -1;
