-- +goose NO TRANSACTION
-- +goose Up
-- Who changed what through the API or the command line. Programs of the version before neither write nor read it.
CREATE TABLE audit (
  id      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at      BIGINT          NOT NULL COMMENT 'Unix ms',
  who     VARBINARY(255)  NOT NULL COMMENT 'name of the token, or user@host of a command',
  via     VARBINARY(8)    NOT NULL COMMENT 'api, cli',
  os_user VARBINARY(255)  NOT NULL COMMENT 'user@host of a command that used a token',
  what    VARBINARY(32)   NOT NULL,
  topic   VARBINARY(300)  NOT NULL COMMENT 'target topic; empty: several',
  task_id VARBINARY(255)  NOT NULL COMMENT 'empty: several',
  detail  VARBINARY(4096) NOT NULL COMMENT 'JSON object: the filter',
  amount  BIGINT          NOT NULL COMMENT 'how many it changed, or asked to change',
  KEY at (at),
  KEY task (task_id, at)
) ENGINE=InnoDB COMMENT='notyet 15';
