-- +goose Up
ALTER TABLE timers ADD COLUMN running INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE timers DROP COLUMN running;
