"""Receives HTTP callbacks as notyet sends them, like main.go. See README.md."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BODY = 8 << 20

webhook = Webhook(os.environ["CALLBACK_SECRET"])
lock = Lock()
seen = set()  # a real receiver writes the key in the transaction of what it does


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are reused
    timeout = 30

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > MAX_BODY:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            # json_parse=False: the body is the task's value, which need not be JSON. It must be UTF-8.
            webhook.verify(body, dict(self.headers), json_parse=False)
        except (WebhookVerificationError, UnicodeDecodeError):
            return self.answer(401)
        with lock:
            key = self.headers["webhook-id"]
            if key not in seen:
                print(f"{self.headers['Notyet-Id']} attempt {self.headers['Notyet-Attempt']}: {body.decode()}", flush=True)
                seen.add(key)
        self.answer(204)

    do_PUT = do_PATCH = do_DELETE = do_GET = do_POST

    def answer(self, status):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        if status == 413:  # the body was not read
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_):
        pass


host, _, port = os.environ.get("CALLBACK_ADDR", "127.0.0.1:8090").rpartition(":")
server = ThreadingHTTPServer((host, int(port)), Receiver)
print("listening on http://%s:%d" % server.server_address, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
