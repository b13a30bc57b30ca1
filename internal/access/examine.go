package access

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Examined is what an issuer publishes.
type Examined struct {
	Keys      int  // public keys for signatures
	Endpoints bool // it names addresses for signing in that can be used
	S256      bool // it says that it takes PKCE by S256
	// Ahead is by how much its clock is ahead of this machine's, at least; Within is how much more it may be. Within 0: it does not say its time.
	Ahead, Within time.Duration
}

// Examine asks an issuer for what it publishes.
func Examine(ctx context.Context, cfg JWT) (Examined, error) {
	k := newIssuerKeys(cfg, time.Now, zap.NewNop())
	found, keys, err := k.fetch(ctx)
	return Examined{
		Keys: len(keys), Endpoints: k.trusted(found.Authorization) && k.trusted(found.Token), S256: slices.Contains(found.Challenges, "S256"), Ahead: found.ahead, Within: found.within,
	}, err
}
