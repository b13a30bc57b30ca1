package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

// Members answers the ids of the members that are alive under a root (empty: DefaultRoot), for somebody who is not one of
// them. A member that died counts for as long as its session lasts.
func Members(ctx context.Context, servers []string, root string, log *zap.Logger) ([]string, error) {
	ids, err := members(ctx, servers, root, log)
	if err != nil {
		return nil, fmt.Errorf("asking the ensemble who is alive: %w", err)
	}
	return ids, nil
}

func members(ctx context.Context, servers []string, root string, log *zap.Logger) ([]string, error) {
	if root == "" {
		root = DefaultRoot
	}
	conn, _, err := zk.Connect(servers, DefaultSessionTimeout, zk.WithLogger(clientLog{log}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	type answer struct {
		ids []string
		err error
	}
	answers := make(chan answer, 1) // the client has no timeouts: it blocks while cut off, until it is closed
	go func() {
		ids, err := readMembers(conn, pathsUnder(root).members)
		answers <- answer{ids, err}
	}()
	select {
	case a := <-answers:
		return a.ids, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func readMembers(conn *zk.Conn, parent string) ([]string, error) {
	names, _, err := conn.Children(parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // no dispatcher has ever run here
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		data, _, err := conn.Get(parent + "/" + name)
		switch {
		case errors.Is(err, zk.ErrNoNode): // it has left meanwhile
		case err != nil:
			return nil, err
		default:
			m := memberData{ID: name} // also one that cannot be read is somebody
			_ = json.Unmarshal(data, &m)
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil // an id may have a left-over candidate for a while
}
