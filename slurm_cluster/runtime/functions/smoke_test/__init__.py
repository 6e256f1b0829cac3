"""Custom resource behind SmokeTest: a cluster is ready when a job ran on each of its static workers."""
