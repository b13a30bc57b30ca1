package doctor

import "github.com/notyet/notyet/internal/index"

func eviction(_ Config, x *index.Examined, where string) []Finding {
	switch {
	case x.Policy == "":
		return found(where, Note, "its version and maxmemory-policy are not known: this user may not ask (INFO)", "see that maxmemory-policy is noeviction")
	case x.Policy != "noeviction":
		return found(where, Warning, "is Redis "+x.Version+", and maxmemory-policy is "+x.Policy+": it may drop parts of the index, whose tasks are then up to a second late", "CONFIG SET maxmemory-policy noeviction, and the same in the server's file")
	}
	return found(where, OK, "is Redis "+x.Version+", and evicts nothing", "")
}

func redisClock(_ Config, x *index.Examined, where string) []Finding {
	return clock(where, x.Ahead, x.Within)
}
