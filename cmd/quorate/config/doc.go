// Package config reads the command line and the environment of the server. One
// table holds every setting: it parses, validates, documents and prints them, so
// a setting that is not in the table does not exist, and no other variable is
// read. Ranges that an embedding program must keep too are checked by
// quorate.ServerConfig.Validate; the table gives those problems the name that the
// operator used.
//
// Nothing here touches disk or network.
package config
