package admin

import (
	"context"
	"net/http"

	"github.com/quorate/quorate/transport/auth"
)

type revocationsBody struct {
	Revocations []auth.Revocation `json:"revocations"`
	Version     uint64            `json:"version"`
}

type revocationRequest struct {
	Subject string `json:"subject"`
}

func (h *Handler) listRevocations(w http.ResponseWriter, r *http.Request) {
	b, ok := h.backend(w)
	if !ok {
		return
	}
	value, version := b.Document(auth.RevocationsDocument)
	list, err := auth.DecodeRevocations(value)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	if list == nil {
		list = []auth.Revocation{}
	}
	writeJSON(w, http.StatusOK, revocationsBody{Revocations: list, Version: version})
}

func (h *Handler) revoke(w http.ResponseWriter, r *http.Request) {
	var request revocationRequest
	if !readJSON(w, r, &request) {
		return
	}
	added := auth.Revocation{Subject: request.Subject, SinceMillis: h.deps.Now(), By: caller(r)}
	err := h.amendRevocations(w, r, func(list []auth.Revocation) ([]auth.Revocation, error) { return auth.WithRevocation(list, added) })
	if err != nil {
		return
	}
	h.audit.Warn("subject revoked", "subject", shown(request.Subject), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	writeJSON(w, http.StatusCreated, added)
}

func (h *Handler) liftRevocation(w http.ResponseWriter, r *http.Request) {
	subject := r.PathValue("subject")
	err := h.amendRevocations(w, r, func(list []auth.Revocation) ([]auth.Revocation, error) {
		return auth.WithoutRevocation(list, subject), nil
	})
	if err != nil {
		return
	}
	h.audit.Warn("revocation lifted", "subject", shown(subject), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	w.WriteHeader(http.StatusNoContent)
}

// amendRevocations replaces the revocations by what change makes of them, and answers the
// request if that fails. They are in force on this node when it returns.
func (h *Handler) amendRevocations(w http.ResponseWriter, r *http.Request, change func([]auth.Revocation) ([]auth.Revocation, error)) error {
	b, ok := h.backend(w)
	if !ok {
		return errNoBackend
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	err := amend(ctx, b, auth.RevocationsDocument, func(value []byte) ([]byte, error) {
		list, err := auth.DecodeRevocations(value)
		if err != nil {
			return nil, err
		}
		next, err := change(list)
		if err != nil || len(next) == 0 && len(value) == 0 {
			return nil, err
		}
		return auth.EncodeRevocations(next)
	})
	if err != nil {
		h.failed(w, r, err)
		return err
	}
	h.deps.Changed()
	return nil
}
