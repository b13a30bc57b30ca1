package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/admin"
)

// Refused sign-ins and tokens are noted in the audit log once a minute, those of one kind as one entry. So a flood fills
// nothing.
const (
	refusalsEvery   = time.Minute
	refusalsTimeout = 5 * time.Second
	// refusedWho has blanks, which no token's name has.
	refusedWho, refusedWhat = "not signed in", "sign-in refused"
)

func (s *service) noteRefusals(ctx context.Context) error {
	loop.Every(ctx, refusalsEvery, s.writeRefusals)
	s.writeRefusals(context.WithoutCancel(ctx))
	return nil
}

func (s *service) writeRefusals(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusalsTimeout)
	defer cancel()
	err := s.guard.EachRefused(func(all []access.Refused) error {
		var entries []admin.AuditEntry
		for _, x := range all {
			entries = append(entries, admin.AuditEntry{
				Actor: admin.Actor{Who: refusedWho, Via: admin.ViaAPI}, What: refusedWhat, Count: x.Count,
				Detail: admin.AuditDetail(map[string]any{"why": x.Why, "at": x.At, "last_peer": x.Peer}),
			})
		}
		return admin.New(s.store).Audit(ctx, entries)
	})
	if err != nil {
		s.log.Warn("refused sign-ins cannot be noted in the audit log; this will be tried again", zap.Error(err))
	}
}
