-- +goose NO TRANSACTION
-- +goose Up
-- Whether the process knows that the number of slots can change. One of a version before leaves it 0.
ALTER TABLE services ADD COLUMN spreads TINYINT NOT NULL DEFAULT 0;
