# For both architectures: docker buildx build --platform linux/amd64,linux/arm64 --build-arg COMMIT=$(git rev-parse --short=9 HEAD) .
# Tags name what builds and what compose runs: whoever needs the same bytes again adds the digest that his registry has.
FROM --platform=$BUILDPLATFORM golang:1.27-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The commit that `notyet version` names.
ARG COMMIT=
ARG TARGETOS=
ARG TARGETARCH=
# Time zones go into the binary: the last stage has none, and timers need them.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags timetzdata -ldflags "-s -w -X github.com/notyet/notyet/internal/command.commit=${COMMIT}" -o /out/notyet ./cmd/notyet
RUN install -d /out/doc && cp LICENSE /out/doc && GOOS=$TARGETOS GOARCH=$TARGETARCH scripts/notices >/out/doc/NOTICES
# A volume takes the owner of the folder that it is first mounted on.
RUN install -d -m 0750 /out/lib

# What docker-compose.yml runs: a shell makes its token, and wget asks for its health.
FROM alpine:3.22 AS compose
RUN adduser -S -D -H -u 65532 notyet && install -d -o 65532 -m 0750 /var/lib/notyet /etc/notyet
COPY --from=build /out/notyet /usr/local/bin/notyet
COPY --from=build /out/doc /usr/share/doc/notyet
USER 65532
WORKDIR /var/lib/notyet
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/notyet"]
CMD ["--help"]

# No shell and no packages: the program, and certificates for TLS. It writes to the send log's volume only.
FROM gcr.io/distroless/static-debian13:nonroot@sha256:f7f8f729987ad0fdf6b05eeeae94b26e6a0f613bdf46feea7fc40f7bd72953e6
COPY --from=build /out/notyet /usr/local/bin/notyet
COPY --from=build /out/doc /usr/share/doc/notyet
COPY --from=build --chown=65532:65532 /out/lib /var/lib/notyet
USER 65532:65532
# The send log's place; a dispatcher needs a volume of its own here.
WORKDIR /var/lib/notyet
EXPOSE 8080 9090
ENTRYPOINT ["/usr/local/bin/notyet"]
CMD ["--help"]
