-- +goose NO TRANSACTION
-- +goose Up
-- By which tag a task, or a dead letter, is found. A row counts as long as its task is there with this due time, or its letter. What
-- moves, cancels or forgets a task leaves its rows alone: dispatchers sweep those whose task is gone. A task without tags has none.
CREATE TABLE tags (
  tag  VARBINARY(64) NOT NULL,
  kind TINYINT       NOT NULL COMMENT '0: a task, 1: a dead letter',
  pos  BIGINT        NOT NULL COMMENT 'of a task: due, Unix ms, at least 0; of a letter: its id',
  seq  BIGINT        NOT NULL COMMENT 'of the task',
  PRIMARY KEY (tag, kind, pos, seq)
) ENGINE=InnoDB COMMENT='notyet 30';
