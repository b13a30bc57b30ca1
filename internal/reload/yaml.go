package reload

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// DecodeYAML decodes the one YAML document of a file. A second document is an error: nobody would
// read it, and it may restrict the first. An empty file leaves into unchanged.
func DecodeYAML(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("a second YAML document begins in it, with a line ---: join the two, or use two files")
	}
	return nil
}
