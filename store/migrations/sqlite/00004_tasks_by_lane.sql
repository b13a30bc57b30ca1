-- +goose Up
CREATE INDEX tasks_lane ON tasks (lane, pos);

-- +goose Down
DROP INDEX tasks_lane;
