-- +goose Up
CREATE INDEX dead_letters_died ON dead_letters (died_at);
