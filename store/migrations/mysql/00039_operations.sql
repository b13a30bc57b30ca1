-- +goose NO TRANSACTION
-- +goose Up
-- Changes of many that services make by themselves, a step at a time. Only the first database's table has rows. A program of the version
-- before leaves them alone.
CREATE TABLE operations (
  id      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  what    VARBINARY(32)   NOT NULL,
  topic   VARBINARY(300)  NOT NULL COMMENT 'target topic; empty: several',
  task_id VARBINARY(255)  NOT NULL COMMENT 'of the timer, if it is about one',
  tenant  VARBINARY(255)  NOT NULL COMMENT 'who shares limits with the caller',
  who     VARBINARY(255)  NOT NULL,
  via     VARBINARY(8)    NOT NULL,
  os_user VARBINARY(255)  NOT NULL,
  state   VARBINARY(8)    NOT NULL COMMENT 'running, done, failed or stopped',
  done    BIGINT          NOT NULL,
  total   BIGINT          NOT NULL,
  request MEDIUMBLOB      NOT NULL COMMENT 'what is asked for, and how far it has come',
  result  MEDIUMBLOB      NOT NULL,
  why     VARBINARY(1000) NOT NULL COMMENT 'the last error',
  created BIGINT          NOT NULL COMMENT 'Unix ms',
  changed BIGINT          NOT NULL COMMENT 'Unix ms',
  lease   BIGINT          NOT NULL COMMENT 'Unix ms; until then its holder makes a step',
  holder  VARBINARY(64)   NOT NULL,
  KEY state (state, changed),
  KEY tenant (tenant, id)
) ENGINE=InnoDB COMMENT='notyet 39';
