# The static binary and the certificates of authorities, nothing else, for a user without
# rights.
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /quorate ./cmd/quorate \
 && mkdir /data && chown 65532:65532 /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /quorate /quorate
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
WORKDIR /data
VOLUME /data
ENV SERVICE_STORE_PATH=/data/service.db
EXPOSE 8080 7000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/quorate", "ready"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/quorate"]
CMD ["--port=8080", "--cluster-port=7000"]
