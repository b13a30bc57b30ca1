package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// attackSeeds is the first seed in which somebody makes up names of topics: what earlier seeds draw
// stays as it is.
const attackSeeds = regimeSeeds + 3

// drawAttack draws how many names.
func (p *plan) drawAttack() {
	if r := rand.New(rand.NewPCG(p.seed, 613)); !p.silent && !p.forgets && !p.hostile && p.hush == hushNone {
		p.madeUp = pick(r, 0, 0, 100, 600)
	}
}

// boundSeeds is likewise the first seed whose intake has few unknown targets.
const boundSeeds = regimeSeeds + 4

// boundAttack draws the quota of unknown targets.
func (p *plan) boundAttack() {
	if r := rand.New(rand.NewPCG(p.seed, 619)); p.madeUp > 0 && p.setback.lost == 0 && p.replays == 0 {
		p.quota.UnknownTargets = pick(r, 1, 10, 100)
		p.scanner.Quotas = map[string]scanner.Quota{schemas.TopicIntake: p.quota}
	}
}

// attack has tasks for topics that do not exist, a topic each, all due at one instant. Each is to
// end as a dead letter, like any task for the lost topic, and nobody else's is to be late.
func (w *world) attack(now int64) (all []planned) {
	r := rand.New(rand.NewPCG(w.seed, 617))
	due := now + 1000 + r.Int64N(w.load.Milliseconds())
	for i := range w.madeUp {
		all = append(all, planned{at: now + r.Int64N(w.load.Milliseconds()), op: history.Op{Kind: history.Schedule, Topic: fmt.Sprintf("%s.%d", lostTopic, i), ID: fmt.Sprintf("made-up-%d", i), Key: fmt.Sprint(i % 7), Due: due, Version: -1, MayDie: true}})
	}
	return all
}

// watchBound looks twice a second at how many unknown targets each intake has.
func (w *world) watchBound(begin time.Time) {
	for intake, quota := range w.scanner.Quotas {
		most := int64(quota.UnknownTargets)
		if most == 0 {
			continue
		}
		w.walking.Go(func() {
			for time.Since(begin) < w.load {
				time.Sleep(time.Second / 2)
				if names := w.countRows("SELECT COUNT(*) FROM unknown_targets WHERE intake = ? AND topic <> ?", []byte(intake), []byte{}); names > most {
					w.find("bound", "%s has %d unknown targets, its quota is %d", intake, names, most)
				}
			}
		})
	}
}
