-- +goose NO TRANSACTION
-- +goose Up
-- A timer makes tasks. Those of its runs that are not claimed yet lie between open and next. A slot of -1 is a deleted timer,
-- of which only the version is remembered, and next is then when it was deleted.
CREATE TABLE timers (
  ident      BINARY(16)      NOT NULL PRIMARY KEY COMMENT 'hash of topic and id',
  slot       INT             NOT NULL,
  next       BIGINT          NOT NULL COMMENT 'first run that is not made yet, Unix ms',
  open       BIGINT          NOT NULL COMMENT 'all runs before it are claimed or ended, Unix ms',
  placed     BIGINT          NOT NULL COMMENT 'no run stands behind both its due time and this place',
  state      TINYINT         NOT NULL COMMENT '0: enabled, 1: disabled, 2: deleted',
  seq        BIGINT          NOT NULL COMMENT 'intake position of the request that set it',
  version    BIGINT          NOT NULL COMMENT '-1: none',
  created    BIGINT          NOT NULL COMMENT 'Unix ms of the request that opened it',
  topic      VARBINARY(249)  NOT NULL,
  id         VARBINARY(255)  NOT NULL,
  definition VARBINARY(2048) NOT NULL COMMENT 'JSON: when it runs',
  body       MEDIUMBLOB      NOT NULL COMMENT 'of each run',
  KEY due (slot, next),
  KEY name (topic, id)
) ENGINE=InnoDB COMMENT='notyet 14';
