package callback

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/reload"
	"github.com/notyet/notyet/schemas"
)

const (
	maxSecretsFile = 4 << 20 // bytes

	// maxSecrets is how many secrets an origin has at a time: the new one and the previous one.
	maxSecrets = 2

	// minSecretBytes is the shortest key: 128 bits. Standard Webhooks advises 24 to 64 bytes. The
	// scheme's libraries accept even an empty key, and then sign nothing.
	minSecretBytes = 16

	secretPrefix = "whsec_"
)

// Secrets are the keys of origins, from a file. A changed file is read again.
type Secrets struct {
	byOrigin *reload.Value[map[string]signers]
}

// OpenSecrets reads the file. If a later reading fails, the failure is logged and the previous
// secrets stay. Errors name the line and the field, and never contain a secret.
func OpenSecrets(file string, log *zap.Logger) (*Secrets, error) {
	byOrigin, err := reload.New(func() (map[string]signers, error) { return readSecrets(file) }, func(err error) {
		log.Error("the callback secrets have changed and cannot be used; the previous ones stay in force", zap.Error(err))
	}, file)
	if err != nil {
		return nil, err
	}
	return &Secrets{byOrigin}, nil
}

// of returns the signers of an origin; none without a secret or without a file.
func (s *Secrets) of(origin string) signers {
	if s == nil {
		return nil
	}
	return s.byOrigin.Get()[origin]
}

func readSecrets(file string) (map[string]signers, error) {
	text, err := reload.ReadFile(file, maxSecretsFile)
	if err != nil {
		return nil, fmt.Errorf("callback.secrets: %w", err)
	}
	out, err := parseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("callback.secrets: %s: %w", file, err)
	}
	return out, nil
}

// parseSecrets walks the document by hand: the errors of a decoder into structs repeat unfitting
// values, possibly secrets.
func parseSecrets(text []byte) (map[string]signers, error) {
	const form = "want a YAML list of {origin, secrets: [whsec_…]}"
	var doc yaml.Node
	if err := reload.DecodeYAML(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", form, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.SequenceNode {
		return nil, errors.New(form)
	}
	entries := doc.Content[0].Content
	if len(entries) == 0 {
		return nil, errors.New("there is no origin in it: add one, or leave callback.secrets out")
	}
	out, lines := make(map[string]signers, len(entries)), make(map[string]int, len(entries))
	for _, n := range entries {
		origin, keys, err := parseEntry(n)
		if err != nil {
			return nil, err
		}
		if line, again := lines[origin]; again {
			return nil, at(n.Line, fmt.Sprintf("origin: %s has an entry in line %d already: put both secrets into one", origin, line))
		}
		out[origin], lines[origin] = keys, n.Line
	}
	return out, nil
}

func at(line int, problem string) error {
	return errors.New("line " + strconv.Itoa(line) + ": " + problem)
}

func parseEntry(n *yaml.Node) (origin string, keys signers, err error) {
	if n.Kind != yaml.MappingNode {
		return "", nil, at(n.Line, "is not an entry: write origin and secrets")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch {
		case name.Value == "origin" && origin == "":
			origin, err = parseSecretsOrigin(value)
		case name.Value == "secrets" && keys == nil:
			keys, err = parseKeys(value)
		case name.Value == "origin" || name.Value == "secrets":
			err = at(name.Line, name.Value+": is there twice")
		default:
			err = at(name.Line, "has a field that is none of origin, secrets")
		}
		if err != nil {
			return "", nil, err
		}
	}
	switch {
	case origin == "":
		return "", nil, at(n.Line, "origin: is missing")
	case keys == nil:
		return "", nil, at(n.Line, "secrets: is missing")
	}
	return origin, keys, nil
}

func parseSecretsOrigin(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", at(n.Line, "origin: is not text: write one such as https://shop.example")
	}
	origin, rej := schemas.ParseOrigin([]byte(n.Value))
	if rej != nil {
		return "", at(n.Line, fmt.Sprintf("origin: %s: %s", rej.Problem, rej.Fix))
	}
	return origin, nil
}

func parseKeys(n *yaml.Node) (signers, error) {
	const form = "write a list of one or two: the new secret and, while receivers change over, the old one"
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxSecrets {
		return nil, at(n.Line, "secrets: "+form)
	}
	keys := make(signers, 0, maxSecrets)
	for i, item := range n.Content {
		key, problem := parseKey(item)
		if problem != "" {
			return nil, at(item.Line, fmt.Sprintf("secrets: number %d %s", i+1, problem))
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseKey(n *yaml.Node) (key *standardwebhooks.Webhook, problem string) {
	const fix = `: write whsec_ and the key in base64; "echo whsec_$(openssl rand -base64 32)" makes one`
	if n.Kind != yaml.ScalarNode {
		return nil, "is not text" + fix
	}
	text, ok := strings.CutPrefix(n.Value, secretPrefix)
	if !ok {
		return nil, "does not begin with whsec_" + fix
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, "is not standard base64 with padding" + fix
	}
	if len(raw) < minSecretBytes {
		return nil, fmt.Sprintf("has a key of %d bytes, and at least %d are needed", len(raw), minSecretBytes) + fix
	}
	key, err = standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		return nil, "cannot be used" + fix
	}
	return key, ""
}
