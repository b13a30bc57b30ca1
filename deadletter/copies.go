package deadletter

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// namePatience bounds the naming. An interrupted one is repeated with the command.
const namePatience = time.Minute

// name gives the database the name of a new copy, in the scanners' group first. From then on,
// processes of every other copy end, and so do those of this one until the database has the name
// too.
func (l *Local) name(ctx context.Context, client *kgo.Client, r Reconcile, installation string) (named kafka.Claim, err error) {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	topics := slices.Concat(r.Intake, r.Reports)
	group, err := kafka.GroupClaim(ctx, client, r.Group, topics...)
	if err != nil {
		return named, err
	}
	before, err := admin.New(l.store).Copy(ctx)
	if err != nil {
		return named, err
	}
	old, err := kafka.ParseCopy(before)
	if err != nil {
		return named, err
	}
	named = kafka.Claim{Installation: installation, Copy: kafka.NewCopy(schemas.CutUTF8(l.operator(ctx), 150)+" at "+time.Now().UTC().Format(time.RFC3339), group.Copy, old)}
	if err := kafka.TakeGroup(ctx, client, r.Group, named, topics...); err != nil {
		return named, err
	}
	return named, admin.New(l.store).NameCopy(ctx, before, named.Copy.String())
}

// compareCopies fails if another command has given another copy a name meanwhile.
func (r Reconcile) compareCopies(ctx context.Context, client *kgo.Client, named kafka.Claim) error {
	group, err := kafka.GroupClaim(ctx, client, r.Group, slices.Concat(r.Intake, r.Reports)...)
	if err != nil {
		return err
	}
	return group.Replaces(named, r.Group)
}
