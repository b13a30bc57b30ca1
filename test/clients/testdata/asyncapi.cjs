// Reads requests on standard input, and prints which of them are valid by the document, as AsyncAPI's parser has it.
const fs = require('fs');
const { Parser } = require('@asyncapi/parser');
const Ajv = require('ajv');

(async () => {
  const { document, diagnostics } = await new Parser().parse(fs.readFileSync(process.argv[2], 'utf8'));
  const errors = diagnostics.filter((d) => d.severity === 0);
  if (!document || errors.length > 0) {
    console.error(JSON.stringify(errors, null, 1));
    process.exit(1);
  }
  const validators = {};
  for (const channel of ['intake', 'intakeOfTarget']) {
    const headers = document.channels().get(channel).messages()[0].headers().json();
    validators[channel] = new (Ajv.default || Ajv)({ strict: false, logger: false }).compile(headers);
  }
  const requests = JSON.parse(fs.readFileSync(0, 'utf8'));
  console.log(JSON.stringify(requests.map((r) => validators[r.channel](r.headers))));
})();
