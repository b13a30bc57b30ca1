-- +goose Up
CREATE INDEX dead_letters_died ON dead_letters (died_at);

-- +goose Down
DROP INDEX dead_letters_died;
