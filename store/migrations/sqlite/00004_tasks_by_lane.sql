-- +goose Up
CREATE INDEX tasks_lane ON tasks (lane, pos);
