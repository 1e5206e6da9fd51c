package raftnode

import "github.com/hashicorp/raft"

// FoundingConfiguration is the encoded configuration of a group whose only server is
// id: what the stored state of a group must carry that is to begin with it.
func FoundingConfiguration(id ServerID) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
		{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)},
	}})
}
