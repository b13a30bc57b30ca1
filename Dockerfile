FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The commit that `notyet version` names: docker build --build-arg COMMIT=$(git rev-parse --short=9 HEAD)
ARG COMMIT=
# Time zones go into the binary: the last stage has none, and timers need them.
RUN CGO_ENABLED=0 go build -trimpath -tags timetzdata -ldflags "-s -w -X github.com/notyet/notyet/cmd/internal/command.commit=${COMMIT}" -o /out/notyet ./cmd/notyet

# Alpine, for the wget of the health checks and a shell to look around; certificates for TLS are in its base.
FROM alpine:3.22
# A volume takes the owner of the folder that it is first mounted on.
RUN adduser -S -D -H -u 65532 notyet && install -d -o 65532 -m 0750 /var/lib/notyet /etc/notyet
COPY --from=build /out/notyet /usr/local/bin/notyet
USER 65532
# The send log's place; a dispatcher needs a volume of its own here.
WORKDIR /var/lib/notyet
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/notyet"]
CMD ["--help"]
