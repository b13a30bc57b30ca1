package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"time"

	"github.com/notyet/notyet/schemas"
)

// Kinds of failures below HTTP, as a label of metrics.
const (
	failedDNS     = "dns"
	failedTLS     = "tls"
	failedConnect = "connect"
	failedTimeout = "timeout"
	failedOther   = "failed"
)

// failed returns the outcome of an attempt without an answer, and the failure's kind for metrics.
// Everything below HTTP may pass, even an expired certificate, and is tried again. Only the guard's
// refusal is final. sent is whether a connection was made for the request.
func failed(origin string, err error, sent bool, timeout time.Duration) (Outcome, string) {
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refusal(schemas.HeaderURL + " " + origin + ": " + refused.Error()), "refused"
	}
	kind, text := describe(err, timeout)
	return Outcome{Verdict: Retry, Sent: sent, Reason: origin + " " + text}, kind
}

func refusal(reason string) Outcome {
	return Outcome{Verdict: Dead, Kind: schemas.KindCallback, Reason: reason}
}

// describe names the failure, without the addresses of Go's errors: the task's owner reads the
// text, and must not learn to which addresses names resolve here.
func describe(err error, timeout time.Duration) (kind, text string) {
	var (
		timed   net.Error
		dns     *net.DNSError
		op      *net.OpError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return failedDNS, "has a name that does not exist"
		}
		return failedDNS, "has a name that cannot be resolved now"
	case errors.Is(err, context.DeadlineExceeded):
		return failedTimeout, "did not answer within " + timeout.String()
	case errors.As(err, &timed) && timed.Timeout():
		return failedTimeout, "did not accept a connection in time"
	case errors.As(err, &cert):
		return failedTLS, "has a certificate that is not valid: " + cut(cert.Err.Error())
	case errors.As(err, &unknown), errors.As(err, &alert), errors.As(err, &record):
		return failedTLS, "does not complete the TLS handshake: " + cut(err.Error())
	case errors.As(err, &op):
		kind = failedOther
		if op.Op == "dial" {
			kind = failedConnect
		}
		return kind, "failed: " + cut(op.Err.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failedOther, "closed the connection without an answer"
	}
	return failedOther, "failed: " + cut(err.Error())
}

// cut bounds an error's text: some errors repeat bytes of the receiver.
func cut(text string) string {
	const most = 300
	return printable([]byte(schemas.CutUTF8(text, most)))
}
