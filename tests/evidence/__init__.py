"""The release evidence: every crash point, pause, repeat, disorder and fault, at every sink, counted at the sink."""
