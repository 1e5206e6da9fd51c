package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build compiles the server into dir with the given build tags and returns the path
// of the executable.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	out := filepath.Join(dir, "quorate")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", strings.Join(tags, ","), "-o", out, "github.com/quorate/quorate/cmd/quorate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, text)
	}
	return out, nil
}
