-- The tables of connector.properties. docs/outbox.md says more.
CREATE TABLE notyet_schedules (
  id         CHAR(36)     NOT NULL PRIMARY KEY, -- of the event; Debezium adds it as header id
  intake     VARCHAR(249) NOT NULL,             -- notyet.intake
  record_key VARCHAR(255) NOT NULL,
  topic      VARCHAR(249) NOT NULL,
  task_id    VARCHAR(255) NOT NULL,
  due_ms     BIGINT       NOT NULL,             -- Unix ms
  version    BIGINT       NOT NULL,
  payload    BLOB
);
CREATE TABLE notyet_cancels (
  id         CHAR(36)     NOT NULL PRIMARY KEY,
  intake     VARCHAR(249) NOT NULL,
  record_key VARCHAR(255) NOT NULL,             -- as in the schedule: that keeps them in order
  op         VARCHAR(16)  NOT NULL,             -- cancel or fire
  topic      VARCHAR(249) NOT NULL,
  task_id    VARCHAR(255) NOT NULL,
  version    BIGINT       NOT NULL,
  payload    BLOB                               -- always NULL; the router asks for the column
);
