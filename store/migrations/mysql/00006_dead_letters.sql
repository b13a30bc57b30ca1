-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE dead_letters (
  id          BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  seq         BIGINT          NOT NULL COMMENT 'of the task, or of the rejected request',
  kind        VARBINARY(16)   NOT NULL COMMENT 'dead, expired, rejected',
  topic       VARBINARY(249)  NOT NULL,
  task_id     VARBINARY(255)  NOT NULL,
  due         BIGINT          NOT NULL,
  attempt     INT             NOT NULL,
  replay      INT             NOT NULL,
  reason      VARBINARY(4096) NOT NULL,
  died_at     BIGINT          NOT NULL,
  replayed_at BIGINT          NOT NULL COMMENT '0: not replayed',
  replayed_by VARBINARY(255)  NOT NULL COMMENT 'who asked for it',
  body        MEDIUMBLOB      NOT NULL,
  UNIQUE KEY seq (seq, replay),
  KEY topic (topic, id)
) ENGINE=InnoDB COMMENT='notyet 6';
