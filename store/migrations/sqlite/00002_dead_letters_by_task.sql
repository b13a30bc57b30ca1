-- +goose Up
CREATE INDEX dead_letters_task ON dead_letters (task_id, topic);
