// Package auth verifies the bearer tokens of clients: JSON Web Tokens signed with
// HMAC-SHA-256 under one shared secret. It answers who the bearer is and until
// when; what the bearer may do is decided elsewhere.
package auth
