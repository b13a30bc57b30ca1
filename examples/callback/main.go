// Command callback receives HTTP callbacks as notyet sends them: it verifies the signature, handles
// each delivery once, and says by its status what happens next. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "callback:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	addr := os.Getenv("CALLBACK_ADDR")
	addr = cmp.Or(addr, "127.0.0.1:8090")
	r, err := newReceiver(os.Getenv("CALLBACK_SECRET"), func(d delivery) error {
		_, err := fmt.Fprintf(out, "%s is due since %s, attempt %s: %s\n", d.id, d.due, d.attempt, d.body)
		return err
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done(): // answer what is under way
		bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return server.Shutdown(bounded)
	}
}

// delivery is what notyet says about a request, and its body.
type delivery struct {
	id, due, attempt string
	body             []byte
}

// maxBody is the largest value that an intake of notyet can be set to accept.
const maxBody = 8 << 20

// receiver hands each delivery to handle once.
type receiver struct {
	webhook *standardwebhooks.Webhook
	handle  func(delivery) error

	mu   sync.Mutex
	seen map[string]bool // by idempotency key
	keys []string        // in the order in which they came
}

// maxSeen limits the memory of a demonstration. A real receiver writes the key in the transaction of
// what it does, and keeps it for as long as the installation's longest outage.
const maxSeen = 100_000

func newReceiver(secret string, handle func(delivery) error) (*receiver, error) {
	if secret == "" {
		return nil, errors.New("set CALLBACK_SECRET to the secret of this receiver's origin in callback.secrets")
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("CALLBACK_SECRET: %w", err)
	}
	return &receiver{webhook: webhook, handle: handle, seen: map[string]bool{}}, nil
}

// ServeHTTP answers 2xx when the delivery is done, 503 when notyet is to try again, and 401 for what
// is not from notyet.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if err := r.webhook.Verify(body, req.Header); err != nil {
		http.Error(w, "the signature does not verify", http.StatusUnauthorized)
		return
	}
	// The signature covers webhook-id, which equals Idempotency-Key, and the body. It does not cover
	// the other headers.
	err = r.once(req.Header.Get("webhook-id"), delivery{
		id: req.Header.Get("Notyet-Id"), due: req.Header.Get("Notyet-Due"), attempt: req.Header.Get("Notyet-Attempt"), body: body,
	})
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// once handles a delivery unless an earlier copy of it was handled.
func (r *receiver) once(key string, d delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[key] {
		return nil
	}
	if err := r.handle(d); err != nil {
		return err
	}
	r.seen[key] = true
	if r.keys = append(r.keys, key); len(r.keys) > maxSeen {
		delete(r.seen, r.keys[0])
		r.keys = r.keys[1:]
	}
	return nil
}
