-- +goose NO TRANSACTION
-- +goose Up
-- The names of target topics that did not exist when an intake's first task or timer for the topic was stored. A program of the
-- version before adds none. Scanners delete a row whose topic exists, or has no task and no timer of the intake any more.
CREATE TABLE unknown_targets (
  intake VARBINARY(255) NOT NULL,
  topic  VARBINARY(255) NOT NULL COMMENT 'empty: the row that is locked to add another',
  PRIMARY KEY (intake, topic)
) ENGINE=InnoDB COMMENT='notyet 33';
