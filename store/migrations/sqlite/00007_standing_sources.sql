-- +goose Up
ALTER TABLE sources ADD COLUMN stands_at INTEGER NOT NULL DEFAULT -1;
ALTER TABLE sources ADD COLUMN stands BLOB NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sources DROP COLUMN stands_at;
ALTER TABLE sources DROP COLUMN stands;
