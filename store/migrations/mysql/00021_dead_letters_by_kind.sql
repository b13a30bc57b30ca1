-- +goose NO TRANSACTION
-- +goose Up
-- To count letters of a kind without reading them. Made while letters are written and read; programs of the version before work with it
-- and without it.
CREATE INDEX kind ON dead_letters (kind, replayed_at);
