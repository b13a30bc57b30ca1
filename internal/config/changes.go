package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Take returns c with the live settings of next, the changed keys, and the keys in need of a
// restart. A new or removed quota needs a restart, another number does not. So does the removal of
// allowed targets: half of a file must not allow every target. The content of secrets' files is no
// change: services read such files again by themselves.
func (c *Config) Take(next *Config) (now *Config, taken, restart []string) {
	out := *c
	out.Intake.Topics = slices.Clone(c.Intake.Topics)
	take := func(f field, key string, mine, other reflect.Value) {
		switch {
		case reflect.DeepEqual(mine.Interface(), other.Interface()):
		case f.live && (f.first || !mine.IsZero()) && (f.last || !other.IsZero()):
			mine.Set(other)
			taken = append(taken, key)
		default:
			restart = append(restart, key)
		}
	}
	mine, other := reflect.ValueOf(&out).Elem(), reflect.ValueOf(next).Elem()
	for _, f := range fields {
		to, from := mine.FieldByIndex(f.index), other.FieldByIndex(f.index)
		switch {
		case to.Type() == intakesType:
			if !slices.Equal(slices.Sorted(slices.Values(c.IntakeNames())), slices.Sorted(slices.Values(next.IntakeNames()))) {
				restart = append(restart, f.key)
			}
			for i, in := range c.Intake.Topics {
				same := slices.IndexFunc(next.Intake.Topics, func(n Intake) bool { return n.Topic == in.Topic })
				for _, of := range intakeFields {
					if same >= 0 {
						n := next.Intake.Topics[same]
						// An intake with an own target allows nothing else. Without its own list,
						// an intake may allow more.
						of.live = of.live && (of.key != "allowed-targets" || in.Target == n.Target && (n.own[of.key] || !in.own[of.key]))
						take(of, fmt.Sprintf("%s[%s].%s", f.key, in.Topic, of.key), to.Index(i).FieldByIndex(of.index), from.Index(same).FieldByIndex(of.index))
					}
				}
			}
		case to.Type() == shardsType && sameShards(c.MySQL.Shards, next.MySQL.Shards):
		case c.fromFile(f.key) && next.fromFile(f.key) && f.key != "zookeeper.auth": // that one is read at the start only
		default:
			take(f, f.key, to, from)
		}
	}
	return &out, taken, restart
}
