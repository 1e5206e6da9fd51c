package auth

import "errors"

// ErrNoSecret is returned by New for an empty secret. Configuration.
var ErrNoSecret = errors.New("no secret to verify tokens with")

// ErrRefused is wrapped by every refusal of Verify. Refusal: the same token is
// refused again.
var ErrRefused = errors.New("token refused")
