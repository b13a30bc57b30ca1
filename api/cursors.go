package api

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"sync/atomic"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store/look"
)

// A cursor is the end position of a page, and of a list by tag also the divider of its order.
// Callers pass a cursor back unchanged.
func formatCursor(p *look.ListPlace) string {
	switch {
	case p == nil:
		return ""
	case p.Settled == 0:
		return fmt.Sprintf("%d.%d.%d", p.Pos, p.Lane, p.Seq)
	}
	return fmt.Sprintf("%d.%d.%d.%d", p.Pos, p.Lane, p.Seq, p.Settled)
}

func parseCursor(text, tag string) (*look.ListPlace, error) {
	if text == "" {
		return nil, nil // the first page has no cursor
	}
	var p look.ListPlace
	_, _ = fmt.Sscanf(text, "%d.%d.%d.%d", &p.Pos, &p.Lane, &p.Seq, &p.Settled)
	if formatCursor(&p) != text || (p.Settled > 0) != (tag != "") {
		return nil, wrong("cursor", text, "is none that a list has answered: give back the one of the page before, or leave it out")
	}
	return &p, nil
}

// cursors seals where pages end. A page may end at another topic's task, with a name, an id or a
// time hidden from a caller for some topics. A sealed cursor is good for its list and its token
// only, in every process of the installation.
type cursors struct {
	secret func(context.Context, string) ([16]byte, error)
	aead   atomic.Pointer[cipher.AEAD] // nil: the secret was not read yet
}

// cursorBlock rounds up the length of a cursor, which would tell the length of an id.
const cursorBlock = 64

// page reads a page of a list. The cursor from before is opened, and the next page's cursor sealed.
func (c *cursors) page(ctx context.Context, list string, from, next *string, read func() error) (err error) {
	if *from, err = c.open(ctx, list, *from); err != nil {
		return err
	}
	if err = read(); err == nil {
		*next, err = c.seal(ctx, list, *next)
	}
	return err
}

// seal returns the cursor of a place; the last page's is empty.
func (c *cursors) seal(ctx context.Context, list, place string) (string, error) {
	if place == "" {
		return "", nil
	}
	aead, err := c.ready(ctx)
	if err != nil {
		return "", err
	}
	text := append([]byte(place), 1)
	text = append(text, make([]byte, cursorBlock-1-(len(text)-1)%cursorBlock)...)
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, text, of(ctx, list))), nil
}

func (c *cursors) open(ctx context.Context, list, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	aead, err := c.ready(ctx)
	if err != nil {
		return "", err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		sealed, err = aead.Open(nil, nil, sealed, of(ctx, list))
	}
	if err != nil {
		return "", wrong("cursor", cursor, "is none that a list has answered: give back the one of the page before, or leave it out")
	}
	text := bytes.TrimRight(sealed, "\x00")
	return string(text[:len(text)-1]), nil
}

// of binds a cursor to its list and caller.
func of(ctx context.Context, list string) []byte {
	return []byte(list + "\x00" + access.From(ctx).Name)
}

func (c *cursors) ready(ctx context.Context) (cipher.AEAD, error) {
	if aead := c.aead.Load(); aead != nil {
		return *aead, nil
	}
	key, err := c.secret(ctx, "cursors")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	c.aead.Store(&aead)
	return aead, nil
}
