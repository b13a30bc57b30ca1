-- +goose NO TRANSACTION
-- +goose Up
-- Written when a run of a timer with notyet-overlap skip is released. A run of the same timer that is due later looks whether that one
-- has finished.
ALTER TABLE timers ADD COLUMN running BIGINT NOT NULL DEFAULT 0 COMMENT 'the task of the run that was released last; 0: none';
