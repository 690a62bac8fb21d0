"""Where the runs of a study are computed: on this machine, on a Ray cluster, or wherever shell commands run."""
