package quorate

// Version is the version of the server.
const Version = "0.1.0-dev"
