"""What the rest is built on and no mathematics of ours: random numbers, files, processes, compiled programs."""
