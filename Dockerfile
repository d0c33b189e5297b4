# Builds with any Docker engine: no BuildKit-only syntax, no frontend to download.
FROM golang:1.26 AS build
WORKDIR /src

# Modules in a layer of their own: a change of the sources does not download them again.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X github.com/fullsend/poll-action/internal/cli.version=${VERSION} -X github.com/fullsend/poll-action/internal/cli.commit=${COMMIT}" \
      -o /rootfs/fullsend-poll . \
 && ln -s fullsend-poll /rootfs/fullsend-poll-post \
 && mkdir -p /rootfs/etc/ssl/certs /rootfs/tmp \
 && cp -L /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
 && chmod 1777 /rootfs/tmp

FROM scratch
# One copy of the tree keeps the sticky bit of /tmp, which a copy of the directory by name would lose.
COPY --from=build /rootfs/ /

# No USER on purpose: the files through which a step hands outputs and variables to the runner belong to the
# runner's own user and are writable for that user and for root only. Any other user is refused.

ENTRYPOINT ["/fullsend-poll"]
# What a plain `uses: docker://…` gets; action.yml passes the same argument.
CMD ["action"]
