package access

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Examined is an issuer's published data.
type Examined struct {
	Keys      int  // public keys for signatures
	Endpoints bool // it names addresses for signing in that can be used
	S256      bool // it says that it takes PKCE by S256
	// Ahead is by how much the issuer's clock is ahead of this machine's, at least; Within is how
	// much more is possible. Within 0: the issuer does not tell the time.
	Ahead, Within time.Duration
}

// Examine asks an issuer for the published data.
func Examine(ctx context.Context, cfg JWT) (Examined, error) {
	k := newIssuerKeys(cfg, time.Now, zap.NewNop())
	found, keys, err := k.fetch(ctx)
	return Examined{
		Keys: len(keys), Endpoints: k.trusted(found.Authorization) && k.trusted(found.Token), S256: slices.Contains(found.Challenges, "S256"), Ahead: found.ahead, Within: found.within,
	}, err
}
