package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Changes returns the keys whose values are others in next: those that a service takes over while it runs, and those that need its restart.
// A quota that is new or that ends needs a restart, another number of it does not. What is in the file of a secret is none of them, because
// services read such files again by themselves.
func (c *Config) Changes(next *Config) (taken, restart []string) {
	note := func(f field, key string, before, after reflect.Value) {
		if reflect.DeepEqual(before.Interface(), after.Interface()) {
			return
		}
		if f.live && !before.IsZero() && !after.IsZero() {
			taken = append(taken, key)
		} else {
			restart = append(restart, key)
		}
	}
	old, now := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for _, f := range fields {
		before, after := old.FieldByIndex(f.index), now.FieldByIndex(f.index)
		switch {
		case before.Type() == intakesType:
			if !slices.Equal(slices.Sorted(slices.Values(c.IntakeNames())), slices.Sorted(slices.Values(next.IntakeNames()))) {
				restart = append(restart, f.key)
			}
			for i, in := range c.Intake.Topics {
				same := slices.IndexFunc(next.Intake.Topics, func(n Intake) bool { return n.Topic == in.Topic })
				for _, of := range intakeFields {
					if same >= 0 {
						note(of, fmt.Sprintf("%s[%s].%s", f.key, in.Topic, of.key), before.Index(i).FieldByIndex(of.index), after.Index(same).FieldByIndex(of.index))
					}
				}
			}
		case c.fromFile(f.key) && next.fromFile(f.key) && f.key != "zookeeper.auth": // that one is read at the start only
		default:
			note(f, f.key, before, after)
		}
	}
	return taken, restart
}
