-- +goose NO TRANSACTION
-- +goose Up
-- Made while letters are written and read; programs of the version before work with it and without it.
CREATE INDEX task ON dead_letters (task_id, topic);
