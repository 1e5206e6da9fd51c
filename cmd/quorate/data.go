package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/cmd/quorate/config"
)

// dataTimeout bounds a data command that does not go on until it is ended.
const dataTimeout = 10 * time.Second

// dataCommand is the command line of a command that uses the data of a cluster.
type dataCommand struct {
	*process
	usage      string
	flags      *flag.FlagSet
	url, token string
	timeout    time.Duration
}

// newDataCommand returns a command line with the flags that all data commands have. usage is
// what follows the name of the program.
func (p *process) newDataCommand(usage string) *dataCommand {
	d := &dataCommand{process: p, usage: usage, flags: flag.NewFlagSet(usage, flag.ContinueOnError)}
	d.flags.SetOutput(io.Discard)
	d.flags.StringVar(&d.url, "url", "", "`URLs` of nodes, separated by commas (default ws://127.0.0.1 at PORT)")
	d.flags.StringVar(&d.token, "token", "", "`token` to present (default QUORATE_TOKEN, else one signed with JWT_SECRET if that is set)")
	d.flags.DurationVar(&d.timeout, "timeout", dataTimeout, "how long to wait for the node and its answer")
	return d
}

// parse reads flags and arguments, which may be mixed; what begins with a minus and a digit is
// an argument. It returns false and the exit code when the command cannot go on.
func (d *dataCommand) parse(args []string, least, most int) (positional []string, ok bool, code int) {
	for len(args) > 0 {
		if arg := args[0]; len(arg) < 2 || arg[0] != '-' || arg[1] >= '0' && arg[1] <= '9' {
			positional, args = append(positional, arg), args[1:]
			continue
		}
		err := d.flags.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(d.stdout, "Usage: quorate %s\n", d.usage)
			d.flags.SetOutput(d.stdout)
			d.flags.PrintDefaults()
			return nil, false, exitOK
		case err != nil:
			return nil, false, d.usageError(err.Error())
		}
		args = d.flags.Args()
	}
	if len(positional) < least || len(positional) > most {
		return nil, false, d.usageError("usage: quorate " + d.usage)
	}
	return positional, true, exitOK
}

// open connects to the cluster.
func (d *dataCommand) open(ctx context.Context) (*client.Client, error) {
	// Settings that only matter for running a node may be wrong here.
	settings, _, err := config.Load(nil, d.getenv)
	if err != nil {
		return nil, err
	}
	server := &settings.Server
	cfg := client.Config{Token: d.token, OperationTimeout: d.timeout}
	if cfg.Token == "" {
		cfg.Token = d.getenv("QUORATE_TOKEN")
	}
	if secret := server.Security.JWTSecret; cfg.Token == "" && secret != "" {
		cfg.TokenSource = func(context.Context) (string, error) { return signToken(secret) }
	}
	cfg.Seeds = []string{fmt.Sprintf("ws://127.0.0.1:%d", server.Network.Port)}
	if d.url != "" {
		cfg.Seeds = strings.Split(d.url, ",")
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return client.Open(ctx, cfg)
}

// signToken is a token of the operator, who has the secret.
func signToken(secret string) (string, error) {
	claims := jwt.MapClaims{"sub": "quorate-cli", "exp": time.Now().Add(time.Hour).Unix()}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
}

// run connects and runs do until it returns or a signal ends it.
func (d *dataCommand) run(do func(ctx context.Context, c *client.Client) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := d.open(ctx)
	if err != nil {
		return d.failData(err)
	}
	defer c.Close()
	return d.failData(do(ctx, c))
}

// failData prints what a data command came to, and returns its exit code.
func (p *process) failData(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, client.ErrRefused):
		fmt.Fprintf(p.stderr, "quorate: %v\n", err)
		return exitRefused
	default:
		return p.fail(err)
	}
}

// exitError has the process end with a code without a word.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
