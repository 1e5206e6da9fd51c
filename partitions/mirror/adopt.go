package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/raftnode"
)

// adoptCommands and adoptBytes bound what is proposed at a time.
const (
	adoptCommands = 200
	adoptBytes    = 200 << 10
)

// adopt proposes what the table held before the cluster claimed it. Every step can be
// repeated: records and sets merge, and the greater token stays.
func (g *group) adopt(ctx context.Context) error {
	token := g.leader.Owner.Token
	if err := g.propose(ctx, []raftnode.Command{command.EncodeAdopt(command.Adopt{Token: token})}); err != nil {
		return err
	}
	groups := g.mirror.deps.Cluster().Genesis.Groups
	var cmds []raftnode.Command
	bytes, rows := 0, 0
	flush := func() error {
		err := g.propose(ctx, cmds)
		cmds, bytes = nil, 0
		return err
	}
	err := g.mirror.deps.Table.Scan(ctx, func(row postgres.Row) error {
		if placement.GroupOf(row.Key, groups) != g.id {
			return nil
		}
		rows++
		for _, cmd := range commands(&row) {
			if len(cmds) == adoptCommands || bytes+len(cmd.Body) > adoptBytes && len(cmds) > 0 {
				if err := flush(); err != nil {
					return err
				}
			}
			cmds, bytes = append(cmds, cmd), bytes+len(cmd.Body)
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = g.propose(ctx, []raftnode.Command{command.EncodeAdopt(command.Adopt{Token: token, Complete: true})})
	}
	if err != nil {
		return fmt.Errorf("adopt the rows of the table: %w", err)
	}
	if rows > 0 {
		g.mirror.log.Info("adopted the rows of the table", "group", g.id, "rows", rows)
	}
	return nil
}

// commands write a row.
func commands(row *postgres.Row) []raftnode.Command {
	var list []raftnode.Command
	if row.Record != nil {
		list = append(list, command.EncodePut(command.Put{Map: row.Map, Key: row.Key, Record: *row.Record}))
	}
	for _, rec := range row.Set.Records {
		cmd, _ := command.AppendORAdd(nil, command.ORAdd{Map: row.Map, Key: row.Key, Record: rec})
		list = append(list, cmd)
	}
	for _, tag := range row.Set.Tombstones {
		cmd, _ := command.AppendORRemove(nil, command.ORRemove{Map: row.Map, Key: row.Key, Tag: tag})
		list = append(list, cmd)
	}
	return list
}

// propose has the group apply commands, again and again while it is not known whether it
// has, until this node does not lead any more.
func (g *group) propose(ctx context.Context, cmds []raftnode.Command) error {
	for len(cmds) > 0 {
		if !g.leads() {
			return errLed
		}
		proposal, err := g.mirror.deps.Groups.Propose(g.id, cmds)
		if err == nil {
			_, err = proposal.Wait(ctx)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, raftnode.ErrTooLarge):
			return err
		}
		sleep(ctx, g.mirror.cfg.RetryFirst, nil)
	}
	return nil
}
