-- +goose NO TRANSACTION
-- +goose Up
-- Made while tasks are written and read; programs of the version before work with it and without it. A lane is four bytes for
-- a topic of up to 249, and what is due next in one is written close together.
CREATE INDEX lane ON tasks (lane, pos);
