-- +goose NO TRANSACTION
-- +goose Up
-- Whose the slots are to be, likewise: at most one row. The epochs in the table slots have the word.
CREATE TABLE assignment (
  one    TINYINT        NOT NULL PRIMARY KEY COMMENT '1',
  epoch  BIGINT         NOT NULL,
  leader VARBINARY(255) NOT NULL COMMENT 'the member that wrote it, for operators',
  data   MEDIUMBLOB     NOT NULL COMMENT 'JSON'
) ENGINE=InnoDB COMMENT='notyet 25';
