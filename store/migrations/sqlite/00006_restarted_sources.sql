-- +goose Up
CREATE TABLE sources_now (
  src INTEGER PRIMARY KEY, topic BLOB NOT NULL, topic_id BLOB NOT NULL, part INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  epoch INTEGER NOT NULL DEFAULT -1, epoch_from INTEGER NOT NULL DEFAULT 0, epoch_to INTEGER NOT NULL DEFAULT 0,
  generation INTEGER NOT NULL DEFAULT 0, retired_at INTEGER NOT NULL DEFAULT 0,
  UNIQUE (topic, topic_id, part, generation)
);
INSERT INTO sources_now (src, topic, topic_id, part, next_offset) SELECT src, topic, topic_id, part, next_offset FROM sources;
DROP TABLE sources;
ALTER TABLE sources_now RENAME TO sources;
