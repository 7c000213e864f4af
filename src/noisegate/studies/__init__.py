"""Studies: declared grids of runs, resumable, with the papers' tables and figures."""
