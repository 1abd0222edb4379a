"""The packages of a release. `scripts/dist` builds them; each module here writes one kind."""
