-- +goose NO TRANSACTION
-- +goose Up
-- A task is one row. Its place in the line is (slot, pos): see slots. A slot of -1 is out of the
-- line (ended by hand: cancelled, reported, dead) and pos is then the time it ended.
CREATE TABLE tasks (
  seq     BIGINT          NOT NULL PRIMARY KEY COMMENT 'intake source << 48 | intake offset',
  ident   BINARY(16)      NOT NULL COMMENT 'hash of topic and id',
  slot    INT             NOT NULL,
  pos     BIGINT          NOT NULL COMMENT 'place in the line of the slot, Unix ms',
  lane    INT             NOT NULL COMMENT 'hash of the topic and class of service: who takes turns with whom',
  due     BIGINT          NOT NULL COMMENT 'Unix ms',
  state   TINYINT         NOT NULL,
  attempt INT             NOT NULL COMMENT 'deliveries made',
  replay  INT             NOT NULL COMMENT 'times replayed from the dead letters',
  version BIGINT          NOT NULL COMMENT '-1: none',
  created BIGINT          NOT NULL COMMENT 'Unix ms of the request that opened the task',
  topic   VARBINARY(249)  NOT NULL,
  id      VARBINARY(255)  NOT NULL,
  body    MEDIUMBLOB      NOT NULL,
  UNIQUE KEY ident (ident),
  KEY line (slot, pos, lane)
) ENGINE=InnoDB COMMENT='notyet 1';
