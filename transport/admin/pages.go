package admin

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/quorate/quorate/transport/httperr"
)

//go:embed ui docs
var bundled embed.FS

// contentPolicy lets pages use nothing that does not come from this server.
const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// hashed are names of assets that change with the content, as bundlers make them.
var hashed = regexp.MustCompile(`[.-][0-9A-Za-z_-]{8,}\.[0-9a-z]+$`)

// pages are the files below /admin.
type pages struct {
	files fs.FS
}

// openPages opens the directory of the pages, or the ones in the binary if dir is empty.
// Nothing outside of the directory can be reached, by links neither. A directory that is
// not there answers 404, so that a node starts without its pages.
func openPages(dir string) (pages, error) {
	if dir == "" {
		files, err := fs.Sub(bundled, "ui")
		return pages{files}, err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return pages{}, nil
	}
	if err != nil {
		return pages{}, fmt.Errorf("open the directory of the admin pages: %w", err)
	}
	return pages{root.FS()}, nil
}

func pageHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
}

// servePage serves a file below /admin. A path that looks like none is one of the pages of
// a single-page application, whose index answers for all.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request) {
	pageHeaders(w)
	name := strings.TrimSuffix(r.PathValue("path"), "/")
	if name == "" {
		name = "index.html"
	}
	if strings.Contains(name, "\\") || !fs.ValidPath(name) || h.pages.files == nil {
		httperr.Write(w, http.StatusNotFound, "no such file")
		return
	}
	if h.serveFile(w, r, h.pages.files, name) || h.serveFile(w, r, h.pages.files, path.Join(name, "index.html")) {
		return
	}
	if path.Ext(name) == "" && h.serveFile(w, r, h.pages.files, "index.html") {
		return
	}
	httperr.Write(w, http.StatusNotFound, "no such file")
}

// serveFile serves a regular file, and reports whether there is one.
func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, files fs.FS, name string) bool {
	f, err := files.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	content, ok := f.(io.ReadSeeker)
	if !ok {
		b, err := io.ReadAll(f)
		if err != nil {
			return false
		}
		content = bytes.NewReader(b)
	}
	w.Header().Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") && hashed.MatchString(name) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, info.ModTime(), content)
	return true
}

// docs serves the page that shows the description of the interface.
func (h *Handler) docs(w http.ResponseWriter, r *http.Request) {
	pageHeaders(w)
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	if !fs.ValidPath(name) || !h.serveFile(w, r, bundled, path.Join("docs", name)) {
		httperr.Write(w, http.StatusNotFound, "no such file")
	}
}
