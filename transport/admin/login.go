package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/quota"
)

// credentials is the body of a login.
type credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

type tokenBody struct {
	Token string `json:"token"`
}

type authStatusBody struct {
	AuthRequired bool `json:"authRequired"`
}

// newLoginMetrics counts logins beside the other ways to authenticate.
func newLoginMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	v := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "service_admin_logins_total", Help: "Attempts to log in to the admin plane by result.",
	}, []string{"result"})
	for _, result := range []string{"accepted", "refused", "limited"} {
		v.WithLabelValues(result)
	}
	return v
}

func (h *Handler) authStatus(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, authStatusBody{AuthRequired: h.deps.Clients != nil})
}

// maxCredentials bounds the body of a login in bytes: anybody may send one, and what has come of
// it is held until its end.
const maxCredentials = 8 << 10

// login gives out a token for the right name and password. Attempts are bounded per
// address and per name, before the password is looked at; a right one gives its share back.
func (h *Handler) login(w http.ResponseWriter, r *http.Request) {
	var c credentials
	r.Body = http.MaxBytesReader(w, r.Body, maxCredentials)
	if !readKnownJSON(w, r, &c) {
		return
	}
	if h.cfg.Password == "" {
		httperr.Write(w, http.StatusServiceUnavailable, "login is off: SERVICE_ADMIN_PASSWORD is not set")
		return
	}
	addr, now := quota.Address(r), h.now()
	user := string(digest(c.Username)) // a name can be long
	if ok, wait := h.byAddr.Take(addr, 1, now); !ok {
		h.refuseLogin(w, r, c.Username, wait)
		return
	}
	if ok, wait := h.byUser.Take(user, 1, now); !ok {
		h.refuseLogin(w, r, c.Username, wait)
		return
	}
	// Both are compared always, by digests of one length, so that the time tells nothing.
	name := subtle.ConstantTimeCompare(digest(c.Username), digest(h.cfg.Username))
	password := subtle.ConstantTimeCompare(digest(c.Password), digest(h.cfg.Password))
	if name&password != 1 {
		h.logins.WithLabelValues("refused").Inc()
		h.audit.Warn("login refused", "user", shown(c.Username), "addr", r.RemoteAddr, "request_id", requestID(w))
		httperr.Write(w, http.StatusUnauthorized, "wrong user name or password")
		return
	}
	h.byAddr.Give(addr)
	h.byUser.Give(user)
	token, err := h.deps.Tokens.Issue(h.cfg.Username)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	h.logins.WithLabelValues("accepted").Inc()
	h.audit.Info("login", "user", h.cfg.Username, "addr", r.RemoteAddr, "request_id", requestID(w))
	writeJSON(w, http.StatusOK, tokenBody{Token: token})
}

func (h *Handler) refuseLogin(w http.ResponseWriter, r *http.Request, user string, wait time.Duration) {
	h.logins.WithLabelValues("limited").Inc()
	h.audit.Warn("login refused, too many attempts", "user", shown(user), "addr", r.RemoteAddr, "request_id", requestID(w))
	quota.Refuse(w, wait)
}

func digest(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// shown is a name from outside as it may be logged.
func shown(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most]
	}
	return strings.ToValidUTF8(name, "?")
}

// localAdmin is who acts where nobody needs a token.
const localAdmin = "local-admin"

type callerKey struct{}

// caller is the operator who sent an authorized request.
func caller(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name
}

// authorized lets bearers of an operator's token through: 401 without a good token, 403
// with one of a client.
func (h *Handler) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := localAdmin
		if !h.cfg.Open {
			scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			token = strings.TrimSpace(token)
			if !strings.EqualFold(scheme, "Bearer") || token == "" {
				h.unauthorized(w, "authentication required")
				return
			}
			p, err := h.deps.Tokens.Verify(token)
			if err != nil {
				if h.deps.Clients != nil {
					if _, err := h.deps.Clients.Verify(token); err == nil {
						httperr.Write(w, http.StatusForbidden, "this token is not an operator's")
						return
					}
				}
				h.unauthorized(w, "invalid or expired token")
				return
			}
			name = p.ID
		}
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), name)))
	})
}

func (h *Handler) unauthorized(w http.ResponseWriter, message string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	httperr.Write(w, http.StatusUnauthorized, message)
}
